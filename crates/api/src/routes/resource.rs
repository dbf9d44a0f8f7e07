//! Objects and parts of targets as resources of HTTP: read, put and delete are the same for all of them.

use axum::Json as Answer;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::query::How;
use super::{Done, Shared, precondition, tagged};
use crate::callers::Caller;
use crate::edits::{self, Part};
use crate::objects::{Document, Key, Kind};
use crate::problem::Problem;
use crate::server::Catalog;

/// The name of an object that may be there.
pub(super) fn key(kind: Kind, name: &str) -> Result<Key, Problem> {
    Key::new(kind, name).map_err(|why| Problem::not_found(&format!("such {}: {why}", kind.table())))
}

/// A target that may be there.
pub(super) fn target<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Document, Problem> {
    let key = key(Kind::Target, name)?;
    catalog.find(&key).ok_or_else(|| Problem::not_found(&key.to_string()))
}

/// The place of a document.
#[derive(Clone)]
pub(super) enum Place {
    /// An object: its kind and name.
    Object(Kind, String),
    /// A part of a target: the target, the kind of part and its name.
    Part(String, Part, String),
}

/// A change that a request asks for.
pub(super) struct Asked {
    pub(super) caller: Caller,
    pub(super) how: How,
    pub(super) headers: HeaderMap,
}

impl Place {
    fn find(&self, catalog: &Catalog) -> Result<Option<Value>, Problem> {
        match self {
            Self::Object(kind, name) => Ok(catalog.find(&key(*kind, name)?).cloned().map(Value::Object)),
            Self::Part(of, part, name) => part.find(target(catalog, of)?, name),
        }
    }

    fn read(&self, catalog: &Catalog, status: StatusCode) -> Result<Response, Problem> {
        let missing = || match self {
            Self::Object(kind, name) => key(*kind, name).map(|key| key.to_string()),
            Self::Part(of, part, name) => Ok(format!("{part} {name} of target {of}")),
        };
        match self.find(catalog)? {
            Some(document) => Ok(tagged(status, &document)),
            None => Err(Problem::not_found(&missing()?)),
        }
    }

    /// Refuses a place that the client may not see, before anything else tells whether something is there.
    fn check(&self, caller: &Caller) -> Result<(), Problem> {
        caller.check_target(match self {
            Self::Object(Kind::Portal, _) => None,
            Self::Object(Kind::Target, name) | Self::Part(name, ..) => Some(name),
        })
    }

    pub(super) fn get(&self, shared: &Shared, caller: &Caller) -> Result<Response, Problem> {
        self.check(caller)?;
        self.read(&shared.server.catalog(), StatusCode::OK)
    }

    pub(super) async fn put(self, shared: &Shared, asked: Asked, document: Document) -> Result<Response, Problem> {
        self.check(&asked.caller)?;
        if let Self::Object(kind, name) = &self {
            Key::new(*kind, name).map_err(Problem::invalid)?;
        }
        let was_there = self.find(&shared.server.catalog())?.is_some();
        match self.change(shared, asked, Some(document)).await? {
            Done::Planned(plan) => Ok(Answer(plan).into_response()),
            Done::Changed(changed) => {
                self.read(&changed.catalog, if was_there { StatusCode::OK } else { StatusCode::CREATED })
            }
        }
    }

    pub(super) async fn delete(self, shared: &Shared, asked: Asked) -> Result<Response, Problem> {
        self.check(&asked.caller)?;
        match self.change(shared, asked, None).await? {
            Done::Planned(plan) => Ok(Answer(plan).into_response()),
            Done::Changed(_) => Ok(StatusCode::NO_CONTENT.into_response()),
        }
    }

    /// Puts a document in the place, or `None`.
    async fn change(&self, shared: &Shared, asked: Asked, wanted: Option<Document>) -> Result<Done, Problem> {
        let Asked { caller, how, headers } = asked;
        let key = match self {
            Self::Object(kind, name) => key(*kind, name)?,
            Self::Part(of, ..) => key(Kind::Target, of)?,
        };
        let (place, when) = (self.clone(), precondition(&headers)?);
        let edit = move |catalog: &Catalog| match (place, wanted) {
            (Self::Object(..), Some(document)) => edits::put(catalog, &key, document, &when),
            (Self::Object(..), None) => edits::delete(catalog, &key, &when),
            (Self::Part(_, part, name), wanted) => edits::change_part(catalog, &key, (part, &name), wanted, &when),
        };
        shared.change(caller, how, edit).await
    }
}

/// The schemas of a document, and the handlers that read, put and delete it, with their description.
macro_rules! resource {
    (
        #[doc = $about:tt]
        $document:ident, $or_plan:ident, $tag:tt, $path:tt, [$($params:tt)*], $names:pat => $types:ty => $place:expr;
        $(#[doc = $get_doc:tt])+
        $get:ident;
        $(#[doc = $put_doc:tt])+
        $put:ident;
        $(#[doc = $delete_doc:tt])+
        $delete:ident;
    ) => {
        #[doc = $about]
        #[derive(Debug, ::serde::Serialize, ::serde::Deserialize, ::utoipa::ToSchema)]
        #[schema(value_type = Object)]
        pub(crate) struct $document(Document);

        /// The document, or the plan of a dry run.
        #[derive(::utoipa::ToSchema)]
        #[serde(untagged)]
        #[expect(dead_code, reason = "a schema")]
        pub(crate) enum $or_plan {
            $document($document),
            Plan(Plan),
        }

        $(#[doc = $get_doc])+
        #[utoipa::path(
            get,
            path = $path,
            tag = $tag,
            params($($params)*),
            responses(
                (status = 200, body = $document, headers(("ETag" = String))),
            )
        )]
        pub(crate) async fn $get(
            State(shared): State<Shared>,
            caller: Caller,
            Path($names): Path<$types>,
        ) -> Result<Response, Problem> {
            $place.get(&shared, &caller)
        }

        $(#[doc = $put_doc])+
        #[utoipa::path(
            put,
            path = $path,
            tag = $tag,
            params(
                $($params)*,
                ("If-Match" = String, Header, description = "Only when its ETag is this one"),
                ("If-None-Match" = NewOnly, Header, description = "Only when it is not there yet"),
                How,
            ),
            request_body = $document,
            responses(
                (status = 200, description = "It was there, or this is a dry run", body = $or_plan, headers(("ETag" = String))),
                (status = 201, description = "It is new", body = $document, headers(("ETag" = String))),
            )
        )]
        pub(crate) async fn $put(
            State(shared): State<Shared>,
            caller: Caller,
            Path($names): Path<$types>,
            Query(how): Query<How>,
            headers: HeaderMap,
            Json($document(document)): Json<$document>,
        ) -> Result<Response, Problem> {
            $place.put(&shared, Asked { caller, how, headers }, document).await
        }

        $(#[doc = $delete_doc])+
        #[utoipa::path(
            delete,
            path = $path,
            tag = $tag,
            params(
                $($params)*,
                ("If-Match" = String, Header, description = "Only when its ETag is this one"),
                How,
            ),
            responses(
                (status = 200, description = "What a dry run says", body = Plan),
                (status = 204, description = "It is not there any more"),
            )
        )]
        pub(crate) async fn $delete(
            State(shared): State<Shared>,
            caller: Caller,
            Path($names): Path<$types>,
            Query(how): Query<How>,
            headers: HeaderMap,
        ) -> Result<Response, Problem> {
            $place.delete(&shared, Asked { caller, how, headers }).await
        }
    };
}
pub(super) use resource;
