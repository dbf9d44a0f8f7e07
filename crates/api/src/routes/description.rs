//! The document that describes the API: what its paths have in common is written here, and each path says what it has
//! alone.

use serde_json::{Map, Value, json};
use utoipa::openapi::{OpenApi, RefOr, Schema};

/// Statuses of refusals. Their bodies are problems.
const REFUSALS: [(u16, &str); 13] = [
    (400, "The request cannot be understood"),
    (401, "A token or a certificate is needed"),
    (403, "The token or certificate does not allow it, or a browser sends the request for another site"),
    (404, "There is no such object"),
    (408, "The body has not come in time"),
    (409, "The change contradicts what is served"),
    (412, "If-Match or If-None-Match does not hold"),
    (413, "The body is too long"),
    (415, "The body is not application/json"),
    (421, "The name in Host is not one of this server"),
    (422, "The object has a mistake"),
    (500, "The server has failed"),
    (503, "Not available now"),
];

/// The documents, with the key that names each. The body of a PUT may leave it out, because it is in the path.
const NAMED: [(&str, &str); 4] = [("Target", "name"), ("Portal", "address"), ("Lun", "number"), ("Host", "name")];

/// Where schemas are in the document.
const SCHEMAS: &str = "#/components/schemas/";

/// The whole description, in which documents have these schemas.
pub(super) fn complete(description: &OpenApi, documents: Vec<(String, RefOr<Schema>)>) -> Value {
    // A structure of texts becomes JSON.
    let mut whole = serde_json::to_value(description).unwrap_or_default();
    whole["security"] = json!([{ "token": [] }, { "certificate": [] }]);
    whole["components"]["securitySchemes"]["token"] =
        json!({ "type": "http", "scheme": "bearer", "description": "Over TCP. A Unix socket asks for none." });
    whole["components"]["securitySchemes"]["certificate"] = json!({ "type": "mutualTLS", "description": "Over TCP, of a client that api.client names. A token counts before it." });
    if let Some(schemas) = whole["components"]["schemas"].as_object_mut() {
        add_documents(schemas, documents);
    }
    if let Some(paths) = whole["paths"].as_object_mut() {
        complete_paths(paths);
    }
    whole
}

/// Adds the schemas of documents, and those of bodies that leave out the name.
fn add_documents(schemas: &mut Map<String, Value>, documents: Vec<(String, RefOr<Schema>)>) {
    for (name, schema) in documents {
        let mut schema = serde_json::to_value(schema).unwrap_or_default();
        remove_null(&mut schema);
        schemas.insert(name, schema);
    }
    for (name, key) in NAMED {
        let mut body = schemas.get(name).cloned().unwrap_or_default();
        if let Some(required) = body.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|required| required != key);
        }
        schemas.insert(format!("{name}Body"), body);
    }
}

/// Takes null out of what a value may be: the files of objects are TOML, which knows none.
fn remove_null(schema: &mut Value) {
    if let Some([kind, null]) = schema.get("type").and_then(Value::as_array).map(Vec::as_slice)
        && null == "null"
    {
        schema["type"] = kind.clone();
    }
    if let Some(choices) = schema.get_mut("oneOf").and_then(Value::as_array_mut) {
        choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
    }
    match schema {
        Value::Object(values) => values.values_mut().for_each(remove_null),
        Value::Array(values) => values.iter_mut().for_each(remove_null),
        _ => {}
    }
}

fn complete_paths(paths: &mut Map<String, Value>) {
    let all = paths.clone();
    for (path, item) in paths {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
            for parameter in parameters.into_iter().flatten() {
                // What is in the path is there; all headers may be left out. A query says it by itself.
                match parameter["in"].as_str() {
                    Some("path") => parameter["required"] = true.into(),
                    Some("header") => parameter["required"] = false.into(),
                    _ => {}
                }
            }
            add_refusals(operation);
            if method == "put" {
                leave_out_the_name(operation);
                link(operation, path, &all);
            }
        }
    }
}

fn add_refusals(operation: &mut Value) {
    let statuses: Vec<_> = REFUSALS.into_iter().filter(|(status, _)| is_possible(operation, *status)).collect();
    let responses = &mut operation["responses"];
    for (status, what) in statuses {
        let status = status.to_string();
        if responses.get(&status).is_none() {
            let problem = json!({ "schema": { "$ref": format!("{SCHEMAS}Problem") } });
            responses[status] = json!({ "description": what, "content": { "application/problem+json": problem } });
        }
    }
}

/// Whether an operation may be refused with this status.
fn is_possible(operation: &Value, status: u16) -> bool {
    let has_body = operation.get("requestBody").is_some();
    let (names, queries) = (parameters(operation, "path"), parameters(operation, "query"));
    let is_conditional = has_body || !parameters(operation, "header").is_empty();
    match status {
        400 => has_body || !names.is_empty() || !queries.is_empty(),
        401 | 403 | 503 => operation.get("security").is_none(),
        404 => !names.is_empty(),
        409 | 412 | 422 => is_conditional,
        408 | 413 | 415 => has_body,
        _ => true,
    }
}

/// The names of the parameters of an operation that are in this place.
fn parameters<'a>(operation: &'a Value, place: &str) -> Vec<&'a str> {
    let all = operation.get("parameters").and_then(Value::as_array).into_iter().flatten();
    all.filter(|parameter| parameter["in"] == place).filter_map(|parameter| parameter["name"].as_str()).collect()
}

/// Lets the body of a PUT leave out the key that is in its path.
fn leave_out_the_name(operation: &mut Value) {
    let Some(schema) = operation.pointer_mut("/requestBody/content/application~1json/schema/$ref") else { return };
    if let Some((name, _)) = NAMED.into_iter().find(|(name, _)| *schema == format!("{SCHEMAS}{name}")) {
        *schema = format!("{SCHEMAS}{name}Body").into();
    }
}

/// Links a PUT to the operations on what it has put, and on what is below.
fn link(operation: &mut Value, path: &str, all: &Map<String, Value>) {
    let names = parameters(operation, "path");
    let known: Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), format!("$request.path.{name}").into())).collect();
    let below = all.iter().filter(|(other, _)| !known.is_empty() && other.starts_with(path));
    let operations = below.flat_map(|(_, item)| item.as_object().into_iter().flatten());
    let ids = operations.filter_map(|(_, operation)| operation["operationId"].as_str());
    let links: Map<String, Value> =
        ids.map(|id| (id.to_owned(), json!({ "operationId": id, "parameters": known }))).collect();
    for status in ["200", "201"] {
        if let Some(response) = operation["responses"].get_mut(status).filter(|_| !links.is_empty()) {
            response["links"] = links.clone().into();
        }
    }
}
