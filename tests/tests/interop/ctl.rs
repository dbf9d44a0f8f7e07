//! `lunette ctl` against a running server, with libiscsi as the client that sees what has changed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Output;
use std::sync::mpsc::channel;
use std::thread;

use lunette_testkit::ScriptedInitiator;
use lunette_tests::{Configured, Owned, Server, attach, login_request, lunette, run};
use serde_json::Value;

/// A target in the main file, whose name the tests of this crate use, and an API.
const MAIN: &str = "listen = [\"127.0.0.1:0\"]\n[api]\nlisten = [\"unix:@/api.sock\"]\n\
                    [[target]]\nname = \"iqn.2026-11.org.example:a\"\nlun = [{ number = 0, disk = \"mem:1M\" }]";

const DB: &str = "targets/iqn.2026-11.org.example:db";

fn ctl(place: &Configured, arguments: &[&str]) -> Output {
    let socket = format!("unix:{}", place.file("api.sock").display());
    lunette().args(["ctl", "--api", &socket]).args(arguments).output().unwrap()
}

/// The output of a command that must succeed.
fn done(place: &Configured, arguments: &[&str]) -> String {
    let output = ctl(place, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(place: &Configured, arguments: &[&str]) -> Value {
    serde_json::from_str(&done(place, &[arguments, &["--json"]].concat())).unwrap()
}

/// The exit code and the message of a command that must fail.
fn failed(place: &Configured, arguments: &[&str]) -> (i32, String) {
    let output = ctl(place, arguments);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The targets that a client of another make finds, with their disks.
fn seen(server: &Server) -> String {
    run("iscsi-ls", ["-s", &format!("iscsi://{}", server.address())]).succeeded().to_owned()
}

fn files(place: &Configured) -> Vec<String> {
    let folder = fs::read_dir(place.file("conf.d")).unwrap();
    let mut names: Vec<_> = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn what_is_added_is_served_at_once_and_after_a_restart() {
    let (place, server) = Configured::serve(MAIN, 1);
    let disk = format!("disk={}", place.file("db.img").display());
    done(&place, &["add", DB, "max_connections=4", "allow=[\"*\"]"]);
    done(&place, &["add", &format!("{DB}/luns/3"), &disk, "create=10485760"]);
    assert!(done(&place, &["ls", "luns"]).contains("  10M   512  "), "{}", done(&place, &["ls", "luns"]));
    assert!(seen(&server).contains("iqn.2026-11.org.example:db"), "{}", seen(&server));
    assert!(seen(&server).contains("Lun:3    Type:DIRECT_ACCESS (Size:9M)"), "{}", seen(&server));
    assert_eq!(files(&place), ["target-iqn.2026-11.org.example:db.toml"]);

    done(&place, &["resize", &format!("{DB}/luns/3"), "20M"]);
    let disks = json(&place, &["ls", "luns"]);
    assert_eq!(disks.as_array().unwrap().last().unwrap()["size_bytes"], 20 << 20);
    assert_eq!(fs::metadata(place.file("db.img")).unwrap().len(), 20 << 20);

    server.stop();
    let server = place.start(MAIN, 2);
    assert!(seen(&server).contains("Lun:3    Type:DIRECT_ACCESS (Size:19M)"), "{}", seen(&server));
    assert!(done(&place, &["ls"]).contains("iqn.2026-11.org.example:db  conf.d  1     0      -"));

    done(&place, &["rm", DB]);
    done(&place, &["rm", DB]);
    assert!(!seen(&server).contains(":db"), "{}", seen(&server));
    assert!(files(&place).is_empty());
    assert!(place.file("db.img").exists(), "a disk outlives its target");
}

#[test]
fn a_plan_names_the_sessions_that_notice_and_apply_makes_it_true() {
    let place = Configured::new();
    fs::create_dir(place.file("conf.d")).unwrap();
    let (a, main) = MAIN.split_once("[[target]]").map(|(main, target)| (format!("[[target]]{target}"), main)).unwrap();
    fs::write(place.file("conf.d/target-iqn.2026-11.org.example:a.toml"), &a).unwrap();
    let server = place.start(main, 1);
    let mut initiator = attach(&server, &[]);
    let wanted = |text: &str| {
        fs::write(place.file("wanted.toml"), text).unwrap();
        place.file("wanted.toml").display().to_string()
    };

    let file = wanted(
        "[[target]]\nname = \"iqn.b\"\nallow = [\"*\"]\nlun = [{ number = 0, disk = \"mem:1M\" }]\n[[target]]\nname = \"iqn.c\"",
    );
    assert_eq!(done(&place, &["plan", "-f", &file]), "target iqn.b added\ntarget iqn.c added\n");
    assert!(!seen(&server).contains("iqn.b"), "a plan changes nothing");
    done(&place, &["apply", "-f", &file]);
    assert_eq!(done(&place, &["plan", "-f", &file]), "nothing changes\n");
    assert!(seen(&server).contains("iqn.b"));

    let file = wanted("[[target]]\nname = \"iqn.c\"");
    let planned = json(&place, &["plan", "--prune", "-f", &file]);
    let noticed = planned["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (change["change"].as_str().unwrap(), change["sessions"].as_array().unwrap().len()));
    let expected = [("target iqn.2026-11.org.example:a removed", 1), ("target iqn.b removed", 0)];
    assert_eq!(noticed.collect::<Vec<_>>(), expected, "{planned}");
    let (code, message) = failed(&place, &["apply", "--prune", "-f", &file]);
    assert!(code == 3 && message.contains("example:a removed: in use by session"), "{message}");
    done(&place, &["apply", "--prune", "--force", "-f", &file]);
    initiator.wait_for_logout_request();
    assert_eq!(files(&place), ["target-iqn.c.toml"]);
}

#[test]
fn a_session_is_listed_and_ended() {
    let (place, server) = Configured::serve(MAIN, 1);
    let mut initiator = attach(&server, &[]);
    let sessions = json(&place, &["sessions"]);
    let [session] = sessions.as_array().unwrap().as_slice() else { panic!("{sessions}") };
    assert_eq!(session["target"], "iqn.2026-11.org.example:a");
    assert_eq!(session["peers"].as_array().unwrap().len(), 1);
    let id = session["id"].to_string();
    done(&place, &["kick", &id]);
    initiator.wait_for_logout_request();
    assert_eq!(failed(&place, &["kick", "9999"]).0, 3);
}

#[test]
fn a_scrub_is_a_job_that_fails_when_it_finds_damage() {
    let (place, _server) = Configured::serve(MAIN, 1);
    // A thousand holes of 576 bytes, and one quantum that was never sealed.
    let mut quanta = vec![0; 1000 * 576];
    quanta[7 * 576] = 1;
    fs::write(place.file("quanta"), quanta).unwrap();
    let disk = format!("disk={}", place.file("quanta").display());
    done(&place, &["add", DB]);
    done(&place, &["add", &format!("{DB}/luns/1"), &disk, "quantum=512", "check_quanta=true"]);

    let told = done(&place, &["scrub", "targets/iqn.2026-11.org.example:a/luns/0", "--wait"]);
    assert!(told.contains("state = \"succeeded\"") && told.contains("scrubbed_bytes = 1048576"), "{told}");
    let started = json(&place, &["scrub", &format!("{DB}/luns/1")]);
    assert_eq!((&started["id"], &started["object"]), (&2.into(), &format!("{DB}/luns/1").into()));
    let (code, message) = failed(&place, &["jobs", "2", "--wait"]);
    assert!(code == 1 && message.contains("failed: damaged blocks: 1"), "{message}");
    assert_eq!(json(&place, &["jobs", "2"])["result"]["damaged"], serde_json::json!([7]));
    let list = done(&place, &["jobs"]);
    assert!(list.contains("luns/0") && list.contains("100%  succeeded") && list.contains("100%  failed"), "{list}");
    assert_eq!(json(&place, &["jobs", "2", "--cancel"])["state"], "failed", "an end stays as it is");
    let audit = done(&place, &["audit"]);
    assert!(audit.contains(&format!("scrub {DB}/luns/1: done")), "{audit}");

    assert_eq!(failed(&place, &["scrub", &format!("{DB}/luns/0")]).0, 3);
    assert_eq!(failed(&place, &["scrub", DB]).0, 2);
    assert_eq!(failed(&place, &["jobs", "3"]).0, 3);
}

#[test]
fn exit_codes_say_what_is_wrong() {
    let (place, _server) = Configured::serve(MAIN, 1);
    let (code, message) = failed(&place, &["add", DB, "colour=red"]);
    assert!(code == 3 && message.contains("unknown field `colour`"), "{message}");
    let (code, message) = failed(&place, &["rm", "targets/iqn.2026-11.org.example:a"]);
    assert!(code == 3 && message.contains("config; change it there and send SIGHUP"), "{message}");
    assert_eq!(failed(&place, &["show", DB]).0, 3);
    assert_eq!(failed(&place, &["show", "everything"]).0, 2);
    let nowhere = lunette().args(["ctl", "--api", "unix:/nonexistent/api.sock", "ls"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("is the server running"));
}

#[test]
fn commands_say_what_they_have_done() {
    let (place, server) = Configured::serve(MAIN, 1);
    let lun = format!("{DB}/luns/0");
    assert_eq!(done(&place, &["rm", DB]), format!("{DB} is not there\n"));
    assert_eq!(failed(&place, &["rm", &lun]).0, 3, "it would be a part of nothing");
    done(&place, &["add", DB]);
    assert_eq!(done(&place, &["add", &lun, "disk=mem:1M"]), format!("{lun} added\n"));
    assert_eq!(done(&place, &["rm", &lun]), format!("{lun} removed\n"));
    assert_eq!(json(&place, &["rm", &lun])["removed"], Value::Null);
    assert_eq!(json(&place, &["rm", DB])["removed"], DB);
    let _initiator = attach(&server, &[]);
    let id = json(&place, &["sessions"])[0]["id"].to_string();
    assert!(done(&place, &["show", &format!("sessions/{id}")]).contains("max_burst_length = "));
    assert_eq!(done(&place, &["show", "targets"]), done(&place, &["ls"]));
}

#[test]
fn what_cannot_be_longer_is_not_resized() {
    let (place, _server) = Configured::serve(MAIN, 1);
    done(&place, &["add", DB, "lun=[{ number = 0, disk = \"mem:1M\" }]"]);
    let (code, message) = failed(&place, &["resize", &format!("{DB}/luns/0"), "2M"]);
    assert!(code == 3 && message.contains("create makes files longer"), "{message}");
    assert!(!done(&place, &["show", DB]).contains("create"));
    let (code, message) = failed(&place, &["resize", DB, "2M"]);
    assert!(code == 2 && message.contains("targets/IQN/luns/NUMBER"), "{message}");
    let (code, message) = failed(&place, &["kick", "first"]);
    assert!(code == 2 && message.contains("lunette ctl sessions"), "{message}");
}

#[test]
fn a_resize_is_what_it_says() {
    let (place, server) = Configured::serve(MAIN, 1);
    let (file, lun) = (place.file("disk"), format!("{DB}/luns/0"));
    let len = || fs::metadata(&file).unwrap().len();
    fs::write(&file, vec![1; 1 << 20]).unwrap();
    done(&place, &["add", DB, &format!("lun=[{{ number = 0, disk = \"{}\" }}]", file.display())]);
    done(&place, &["resize", &lun, "2M"]);
    assert_eq!((len(), json(&place, &["ls", "luns"])[1]["size_bytes"].as_u64()), (2 << 20, Some(2 << 20)));
    assert!(!done(&place, &["show", &lun]).contains("create"), "a missing file is not made at a later start");

    // Another file, or none, has its path.
    fs::rename(&file, place.file("moved")).unwrap();
    let (code, message) = failed(&place, &["resize", &lun, "3M"]);
    assert!(code == 3 && message.contains("another file has its path, or none"), "{message}");
    fs::rename(place.file("moved"), &file).unwrap();
    assert_eq!(len(), 2 << 20);

    // Its file was cut below what its entry has asked for already.
    done(&place, &["set", &lun, "create=3M"]);
    fs::File::options().write(true).open(&file).unwrap().set_len(1 << 20).unwrap();
    server.await_log("shorter", 1);
    let (code, message) = failed(&place, &["resize", &lun, "3M"]);
    assert!(code == 3 && message.contains("is to have 3145728 bytes, and 1048576 are served now"), "{message}");
    server.stop();
}

#[test]
fn many_commands_that_change_one_object_all_have_their_turn() {
    let (place, server) = Configured::serve(MAIN, 1);
    let luns: Vec<_> = (0..12).map(|number| format!("{{ number = {number}, disk = \"mem:1M\" }}")).collect();
    done(&place, &["add", DB, &format!("lun=[{}]", luns.join(", "))]);
    thread::scope(|scope| {
        for number in 0..12 {
            let place = &place;
            scope.spawn(move || done(place, &["set", DB, &format!("lun.{number}.vendor=ACME")]));
        }
    });
    let luns = json(&place, &["show", DB])["lun"].clone();
    assert!(luns.as_array().unwrap().iter().all(|lun| lun["vendor"] == "ACME"), "{luns}");
    server.stop();
}

#[test]
fn registrations_are_lost_by_force_alone() {
    let (place, server) = Configured::serve(MAIN, 1);
    done(&place, &["add", DB, "allow=[\"*\"]", "lun=[{ number = 0, disk = \"mem:1M\" }]"]);
    let mut initiator = ScriptedInitiator::connect(&server);
    let names = [("SessionType", "Normal"), ("TargetName", "iqn.2026-11.org.example:db")];
    assert!(login_request(&mut initiator, &names).unwrap().0.status.is_success());
    initiator.test_unit_ready(0);
    let key = [&[0; 8][..], &7u64.to_be_bytes(), &[0; 8]].concat();
    initiator.command(0, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], key, 0).good();
    let change = ["set", DB, "lun.0.vendor=ACME"];
    let told = done(&place, &[&change[..], &["--dry-run"]].concat());
    assert!(told.contains("loses its persistent reservations"), "{told}");
    let (code, message) = failed(&place, &change);
    assert!(code == 3 && message.contains("in use by session") && message.contains("force the change"), "{message}");
    done(&place, &[&change[..], &["--force"]].concat());
    drop(initiator);
    server.stop();
}

#[test]
fn files_and_signals_change_the_same_configuration() {
    let (place, server) = Configured::serve(MAIN, 1);
    done(&place, &["add", DB]);
    let file = place.file("conf.d/target-iqn.2026-11.org.example:db.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text + "alias = \"by hand\"\n").unwrap();
    let log = place.change(&server, MAIN);
    assert!(log.contains("alias changed"), "{log}");
    assert!(done(&place, &["show", DB]).contains("by hand"));
    fs::rename(&file, file.with_file_name("target-iqn.other.toml")).unwrap();
    let log = place.change(&server, MAIN);
    assert!(log.contains("has the name target-iqn.2026-11.org.example:db.toml; rename it"), "{log}");
    assert!(log.contains("nothing has changed"), "the target goes on: {log}");
}

#[test]
fn completions_know_the_objects_of_the_server() {
    let (place, server) = Configured::serve(MAIN, 1);
    done(&place, &["add", &format!("{DB}2")]);
    let complete = |word: &str| done(&place, &["complete", "--", word]);
    assert_eq!(complete("t"), "targets/\n");
    assert_eq!(complete("targets/iqn.2026-11.org.example:a"), "targets/iqn.2026-11.org.example:a\n");
    assert_eq!(complete("targets/iqn.2026-11.org.example:a/l"), "targets/iqn.2026-11.org.example:a/luns/\n");
    assert_eq!(complete("targets/iqn.2026-11.org.example:a/luns/"), "targets/iqn.2026-11.org.example:a/luns/0\n");
    let session = attach(&server, &[]);
    let id = json(&place, &["sessions"])[0]["id"].to_string();
    done(&place, &["scrub", "targets/iqn.2026-11.org.example:a/luns/0", "--wait"]);
    for (shell, script) in SHELLS {
        let asked = |line: &str| in_shell(&place, shell, script, line);
        assert_eq!(asked("lunette ctl show targets/iqn.2026-11.org.example:"), completed(shell), "{shell}");
        assert_eq!(asked("lunette ctl kick "), [id.as_str()], "{shell}");
        assert_eq!(asked("lunette ctl jobs "), ["1"], "{shell}");
    }
    drop(session);
}

/// How a shell completes the line in `LINE`, for the command in `PATH`.
const SHELLS: [(&str, &str); 3] = [
    (
        "bash",
        "source <(lunette completions bash); COMP_LINE=$LINE COMP_POINT=${#LINE} _lunette_objects lunette; printf '%s\n' \"${COMPREPLY[@]}\"",
    ),
    // Outside of its line editor zsh has no compadd; what follows -- are the words.
    (
        "zsh",
        "autoload -U compinit; compinit -D -u; source <(lunette completions zsh); compadd() { print -rl -- \"${@[(r)--,-1][2,-1]}\" }; \
         words=(${(z)LINE} ''); [[ $LINE == *' ' ]] || words[-1]=(); CURRENT=$#words PREFIX=$words[-1]; _lunette",
    ),
    ("fish", "source (lunette completions fish | psub); complete -C $LINE"),
];

/// Words that a shell puts in the place of `targets/iqn.2026-11.org.example:`. Bash breaks words at colons.
fn completed(shell: &str) -> Vec<String> {
    let before = if shell == "bash" { "" } else { "targets/iqn.2026-11.org.example:" };
    ["a", "db2"].map(|name| format!("{before}{name}")).to_vec()
}

fn in_shell(place: &Configured, shell: &str, script: &str, line: &str) -> Vec<String> {
    let program = lunette().get_program().to_owned();
    let path = format!("{}:/usr/bin:/bin", std::path::Path::new(&program).parent().unwrap().display());
    let mut command = std::process::Command::new(shell);
    command.args(["-c", script]).env("LINE", line).env("PATH", path).env("HOME", place.file("home"));
    let output = command.env("LUNETTE_API", format!("unix:{}", place.file("api.sock").display())).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shell}: {text} {}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn completions_know_the_commands() {
    let output = lunette().args(["completions", "bash"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["resize", "apply", "kick", "--prune"] {
        assert!(text.contains(word), "{word}");
    }
}

/// Everything that leaves the server is searched for what is secret.
#[test]
fn secrets_stay_in_their_files() {
    const MARKER: &str = "marker-of-a-secret-0123456789";
    let (place, server) = Configured::serve(MAIN, 1);
    fs::write(place.file("secret"), MARKER).unwrap();
    let chap = format!("chap=[{{ user = \"u\", secret_file = \"{}\" }}]", place.file("secret").display());
    let mut events = lunette();
    events.args(["ctl", "events", "--api", &format!("unix:{}", place.file("api.sock").display())]);
    let mut events = Owned::start(events.stdout(std::process::Stdio::piped()));
    let (told, heard) = channel();
    let lines = BufReader::new(events.stdout.take().unwrap()).lines().map_while(Result::ok);
    let reader = thread::spawn(move || lines.for_each(|line| drop(told.send(line))));
    // What changes before the reader of events is there is not told to it.
    let mut text = String::new();
    done(&place, &["add", DB]);
    for attempt in 0.. {
        done(&place, &["replace", DB, &chap, &format!("max_connections={}", attempt % 2 + 1)]);
        if let Ok(line) = heard.try_recv() {
            text = line;
            break;
        }
    }
    fs::write(place.file("wrong.toml"), format!("[[target]]\nname = \"iqn.x\"\nchap = [{{ user = {MARKER} }}]"))
        .unwrap();
    let mistake = failed(&place, &["apply", "-f", &place.file("wrong.toml").display().to_string()]).1;
    fs::write(place.file("wanted.toml"), format!("[[target]]\nname = \"iqn.x\"\n{}", chap.replacen('=', " = ", 1)))
        .unwrap();
    let planned = done(&place, &["plan", "-f", &place.file("wanted.toml").display().to_string()]);
    let shown = done(&place, &["show", DB]) + &done(&place, &["ls", "--json"]);
    let files: String =
        files(&place).iter().map(|file| fs::read_to_string(place.file("conf.d").join(file)).unwrap()).collect();
    done(&place, &["rm", DB]);
    text.extend(heard.iter().take_while(|line| !line.contains("removed")));
    drop(events);
    reader.join().unwrap();
    for (what, told) in [
        ("log", server.log()),
        ("plan", planned),
        ("show", shown),
        ("events", text),
        ("mistake", mistake),
        ("files", files),
    ] {
        assert!(!told.contains(MARKER), "{what}: {told}");
    }
}
