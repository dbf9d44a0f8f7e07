//! `cargo xtask chart`: the Helm chart of the driver for Kubernetes, rendered by Helm and validated by kubeconform.
//!
//! The manifest for those without Helm is what Helm prints for the chart's own values. The schemas come from the
//! OpenAPI document of Kubernetes and the CRDs of external-snapshotter. Modules of Go have both, and the tools as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::packages;
use crate::process::{self, root, target_dir};

const FOLDER: &str = "contrib/kubernetes";

/// The tools: each package of Go with its version, and the name of its program.
const HELM: (&str, &str) = ("helm.sh/helm/v3/cmd/helm@v3.19.0", "helm");
const KUBECONFORM: (&str, &str) = ("github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0", "kubeconform");

/// The modules that have the schemas. The CRDs are those of the snapshotter in the chart's `values.yaml`, but for the
/// last number of its version.
const KUBERNETES: &str = "k8s.io/kubernetes@v1.34.0";
const SNAPSHOTTER: &str = "github.com/kubernetes-csi/external-snapshotter/client/v8@v8.2.0";

/// The version of Kubernetes that Helm renders for. A Helm that Go has installed claims an old one.
const RENDERED_FOR: &str = "1.34.0";

/// Values of the chart: a word for them, and the options of Helm.
const VALUES: [(&str, &[&str]); 6] = [
    ("default", &[]),
    ("topology", &["reachablePools={tank,flash}"]),
    ("groups", &["snapshots.groups=true"]),
    ("no snapshots", &["snapshots.enabled=false", "snapshots.groups=true"]),
    (
        "placement",
        &[
            "controller.replicas=2",
            "controller.nodeSelector.disk=ssd",
            "controller.tolerations[0].operator=Exists",
            "node.nodeSelector.disk=ssd",
            "node.tolerations=null",
            "node.maxVolumes=16",
        ],
    ),
    (
        "names",
        &[
            "driverName=csi.example.org",
            "image.repository=registry.example.org/lunette-csi",
            "image.tag=1.0",
            "node.kubeletDir=/var/lib/k0s/kubelet",
            "pool=tank",
            "portals={192.0.2.1:3260,[2001:db8::1]:3260}",
            "server.secret=other",
            "targetPrefix=iqn.2026-11.org.example.other",
        ],
    ),
];

/// Mistakes in the default rendering that the validation has to find: a text, and what stands in its place.
const MISTAKES: [(&str, &str); 3] = [
    ("serviceAccountName:", "serviceAcountName:"),
    ("containerPort: 9808", "containerPort: many"),
    ("attachRequired: true", "attachRequired: 1"),
];

/// The chart and the manifests of the driver for Kubernetes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write the manifest from the chart.
    #[arg(long)]
    update: bool,
}

/// Renders the chart in several ways, and validates what comes out.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::provide_for_chart()?;
    let folder = target_dir().join("chart");
    let chart = Chart { helm: provide(&folder, HELM)?, kubeconform: provide(&folder, KUBECONFORM)?, folder };
    chart.write_schemas()?;
    process::run(Command::new(&chart.helm).args(["lint", "--strict"]).arg(root().join(FOLDER).join("lunette-csi")))?;
    let default = chart.render(&[])?;
    let manifest = root().join(FOLDER).join("lunette-csi.yaml");
    if arguments.update {
        fs::write(&manifest, &default).with_context(|| format!("cannot write {}", manifest.display()))?;
    }
    if fs::read_to_string(&manifest).ok().as_ref() != Some(&default) {
        bail!("{} is not what the chart gives; cargo xtask chart --update writes it", manifest.display());
    }
    for (name, values) in VALUES {
        println!("{name}: {}", chart.check(&chart.render(values)?)?);
    }
    for example in process::file_stems(&root().join(FOLDER).join("examples"))? {
        let path = root().join(FOLDER).join("examples").join(format!("{example}.yaml"));
        println!("{example}.yaml: {}", chart.check(&fs::read_to_string(&path)?)?);
    }
    for (right, wrong) in MISTAKES {
        let broken = default.replace(right, wrong);
        if broken == default || chart.check(&broken).is_ok() {
            bail!("a manifest with {wrong:?} passes");
        }
    }
    println!("the chart, the manifest and the examples are valid for {KUBERNETES}");
    Ok(ExitCode::SUCCESS)
}

struct Chart {
    helm: PathBuf,
    kubeconform: PathBuf,
    folder: PathBuf,
}

impl Chart {
    fn schemas(&self) -> PathBuf {
        self.folder.join("schemas")
    }

    /// Writes a schema for each kind of object, in the place of earlier ones.
    fn write_schemas(&self) -> Result<()> {
        let (kubernetes, snapshotter) = (module(&self.folder, KUBERNETES)?, module(&self.folder, SNAPSHOTTER)?);
        let schemas = self.schemas();
        if schemas.exists() {
            fs::remove_dir_all(&schemas)?;
        }
        fs::create_dir_all(&schemas)?;
        let crds = snapshotter.join("config/crd");
        let mut make = Command::new("python3");
        make.arg(root().join("xtask/src/chart/schemas.py")).arg(kubernetes.join("api/openapi-spec/swagger.json"));
        make.arg(&schemas);
        let stems = process::file_stems(&crds)?;
        make.args(stems.iter().filter(|stem| stem.contains('_')).map(|stem| crds.join(format!("{stem}.yaml"))));
        process::run(&mut make)
    }

    /// The manifests that the chart gives with these values.
    fn render(&self, values: &[&str]) -> Result<String> {
        let mut helm = Command::new(&self.helm);
        helm.args(["template", "lunette-csi", "--namespace", "lunette", "--kube-version", RENDERED_FOR]);
        for value in values {
            helm.args(["--set", value]);
        }
        output(helm.arg(root().join(FOLDER).join("lunette-csi")))
    }

    /// Validates manifests, of which none may be of an unknown kind.
    fn check(&self, manifests: &str) -> Result<String> {
        let file = self.folder.join("checked.yaml");
        fs::write(&file, manifests)?;
        let schemas = self.schemas().join("{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json");
        let mut kubeconform = Command::new(&self.kubeconform);
        kubeconform.args(["-strict", "-summary", "-schema-location"]).arg(schemas);
        Ok(output(kubeconform.arg(&file))?.trim().to_owned())
    }
}

/// A program that Go installs below the folder, unless it is there.
fn provide(folder: &Path, (package, name): (&str, &str)) -> Result<PathBuf> {
    let version = package.rsplit('@').next().unwrap_or_default();
    let bin = folder.join(format!("{name}-{version}"));
    let program = bin.join(name);
    if !program.exists() {
        let mut go = Command::new("go");
        process::run(go.args(["install", "-ldflags=-s -w", package]).env("GOBIN", &bin).env("CGO_ENABLED", "0"))?;
    }
    Ok(program)
}

/// The folder of a module of Go, which is fetched unless it is there.
fn module(folder: &Path, module: &str) -> Result<PathBuf> {
    // Outside of the workspace, so that no go.mod above counts.
    let told = output(Command::new("go").args(["mod", "download", "-json", module]).current_dir(folder))?;
    let told: Value = serde_json::from_str(&told).with_context(|| format!("go prints no JSON about {module}"))?;
    Ok(told["Dir"].as_str().with_context(|| format!("go does not tell the folder of {module}"))?.into())
}

/// The standard output of a command that has to succeed. Its errors are in the error.
fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{command:?}: {}\n{stdout}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(stdout)
}
