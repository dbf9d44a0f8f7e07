"""Writes JSON schemas for kubeconform: schemas.py SWAGGER FOLDER CRD...

SWAGGER is the OpenAPI document of Kubernetes, each CRD a YAML file. A schema is strict: a field that its type does not
have is a mistake.
"""

import json
import pathlib
import sys

import yaml

REF = "#/definitions/"
# Types whose OpenAPI says less than what the API takes.
NUMBER_OR_TEXT = {"oneOf": [{"type": "string"}, {"type": "number"}]}


def strict(schema):
    """The schema, in which fields without a type are refused."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return NUMBER_OR_TEXT
    made = {key: strict(value) for key, value in schema.items() if key not in ("default", "example", "format")}
    if isinstance(schema.get("properties"), dict) and made.get("type", "object") == "object":
        # Here the keys are names of fields.
        made["properties"] = {name: strict(field) for name, field in schema["properties"].items()}
        made.setdefault("additionalProperties", False)
    return made


def references(schema):
    """The names of all definitions that a schema refers to itself."""
    if isinstance(schema, list):
        return {name for one in schema for name in references(one)}
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"].removeprefix(REF)} if isinstance(schema.get("$ref"), str) else set()
    return own | {name for one in schema.values() for name in references(one)}


def closure(name, definitions):
    found, left = {}, {name}
    while left:
        one = left.pop()
        found[one] = definitions[one]
        left |= references(definitions[one]) - found.keys()
    return found


def write(folder, group, version, kind, schema):
    # The core has no group, and kubeconform takes its version for one.
    name = f"{group or version}_{version}_{kind.lower()}.json"
    (folder / name).write_text(json.dumps(schema))


def main(swagger, folder, *crds):
    folder = pathlib.Path(folder)
    definitions = json.loads(pathlib.Path(swagger).read_text())["definitions"]
    definitions = {name: strict(schema) for name, schema in definitions.items()}
    definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = NUMBER_OR_TEXT
    for name, schema in definitions.items():
        for one in schema.get("x-kubernetes-group-version-kind", []):
            body = {"definitions": closure(name, definitions), "required": ["apiVersion", "kind"], "$ref": REF + name}
            # A sibling of $ref counts for nothing.
            body["allOf"] = [{"$ref": body.pop("$ref")}]
            write(folder, one["group"], one["version"], one["kind"], body)
    for crd in crds:
        spec = yaml.safe_load(pathlib.Path(crd).read_text())["spec"]
        for version in (one for one in spec["versions"] if one["served"]):
            schema = strict(version["schema"]["openAPIV3Schema"])
            # The CRD leaves the metadata to the API server.
            schema["properties"]["metadata"] = {"type": "object"}
            write(folder, spec["group"], version["name"], spec["names"]["kind"], schema)


main(*sys.argv[1:])
