//! The API as a function from requests to responses, without sockets.

use std::time::Instant;

use http::{Method, StatusCode, Uri};
use serde_json::json;

use crate::access::{Ask, User, reviews};
use crate::answer::Answer;
use crate::api::Api;
use crate::error::ApiError;
use crate::metrics::Series;
use crate::params::Params;
use crate::path::{self, Route, Target, Verb};
use crate::request::Request;
use crate::verbs::{self, Call};
use crate::view::View;
use crate::{discovery, kinds, media, openapi};

impl Api {
    /// Handles a request. A watch continues as long as its body is read.
    pub async fn call(&self, request: Request) -> Answer {
        let started = Instant::now();
        let mut series = Series { verb: "other", resource: "", code: 0 };
        let answer = self.route(&request, &mut series).await.unwrap_or_else(Answer::from);
        series.code = answer.status.as_u16();
        self.0.metrics.answered(series, started.elapsed());
        answer
    }

    /// Checks whether the user may make a request, before its body is read.
    pub(crate) fn authorize(&self, method: &Method, uri: &Uri, user: &User) -> Result<(), ApiError> {
        let params = Params::parse(uri.query().unwrap_or_default())?;
        match path::parse(method, uri.path(), &params)? {
            Route::Objects(target, verb) => self.permit(user, &target, verb),
            _ => Ok(()),
        }
    }

    /// Checks that the user may do this, and that it does not change what may only be read.
    fn permit(&self, user: &User, target: &Target, verb: Verb) -> Result<(), ApiError> {
        user.authorize(&ask(target, verb))?;
        let stored = kinds::find_review(&target.group, &target.version, &target.plural).is_none();
        match &self.0.options.read_only {
            Some(why) if stored && !verb.reads() => Err(ApiError::read_only(why)),
            _ => Ok(()),
        }
    }

    async fn route(&self, request: &Request, series: &mut Series) -> Result<Answer, ApiError> {
        let headers = &request.headers;
        let params = Params::parse(request.uri.query().unwrap_or_default())?;
        match path::parse(&request.method, request.uri.path(), &params)? {
            Route::Root => Ok(Answer::value(StatusCode::OK, &root(), true)),
            Route::Health => Ok(self.health(true).await),
            Route::Live => Ok(self.health(false).await),
            Route::Version => Ok(Answer::value(StatusCode::OK, &self.version(), true)),
            Route::Core => discovery::core(headers, self.is_read_only()),
            Route::Groups => discovery::all(headers, self.is_read_only()),
            Route::Group(group) => discovery::group(headers, &group),
            Route::Resources { group, version } => discovery::resources(headers, &group, &version, self.is_read_only()),
            Route::OpenApiIndex => openapi::index(headers),
            Route::OpenApiV2 => openapi::v2(headers),
            Route::OpenApi(path) => openapi::document(&path, &params),
            Route::Objects(target, verb) => {
                series.verb = verb.name();
                self.objects(request, params, target, verb, series).await
            }
        }
    }

    async fn objects(
        &self,
        request: &Request,
        params: Params,
        target: Target,
        verb: Verb,
        series: &mut Series,
    ) -> Result<Answer, ApiError> {
        if let Some(review) = kinds::find_review(&target.group, &target.version, &target.plural) {
            series.resource = review.plural;
            return self.review(request, &params, &target, verb, review);
        }
        let found = kinds::find(&target.group, &target.version, &target.plural);
        let (kind, served) = found.ok_or_else(ApiError::no_such_path)?;
        series.resource = kind.plural;
        self.permit(&request.user, &target, verb)?;
        let view = View {
            kind,
            version: served.version,
            form: media::form(&request.headers, &params)?,
            pretty: media::pretty(&request.headers, &params)?,
            now: self.now().unix_seconds(),
        };
        let warnings: Vec<String> = served.deprecated.map(str::to_owned).into_iter().collect();
        let call = Call { api: self, request, params, target, verb, kind, view };
        Ok(call.answer().await?.warn(&warnings))
    }

    fn review(
        &self,
        request: &Request,
        params: &Params,
        target: &Target,
        verb: Verb,
        review: &kinds::Review,
    ) -> Result<Answer, ApiError> {
        let place = review.namespaced == target.namespace.is_some();
        if target.name.is_some() || !place {
            return Err(ApiError::no_such_path());
        }
        if verb != Verb::Create {
            return Err(ApiError::method_not_allowed());
        }
        request.user.authorize(&ask(target, verb))?;
        media::object(&request.headers, true)?;
        let sent = verbs::decode(self, request)?.object;
        if sent["kind"].as_str().is_some_and(|kind| kind != review.kind) {
            let text = format!("the object has the kind {}, and {} was expected", sent["kind"], review.kind);
            return Err(ApiError::bad_request(text));
        }
        let namespace = target.namespace.as_deref();
        let mut answer = reviews::answer(&self.0.options, &request.user, review.plural, namespace, sent)?;
        answer["kind"] = review.kind.into();
        answer["apiVersion"] = format!("{}/{}", target.group, target.version).into();
        let pretty = media::pretty(&request.headers, params)?;
        Ok(Answer::value(StatusCode::CREATED, &answer, pretty))
    }

    async fn health(&self, for_writes: bool) -> Answer {
        let failure = self.0.store.write_failure().borrow().clone().filter(|_| for_writes);
        match self.0.store.revision().await {
            Ok(_) => failure.map_or_else(|| Answer::plain("ok"), |error| ApiError::from(error).into()),
            Err(error) => ApiError::from(error).into(),
        }
    }

    fn version(&self) -> serde_json::Value {
        json!({
            "major": "1",
            "minor": "36",
            "gitVersion": format!("v1.36.0+rutter.{}", self.0.options.version),
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "rustc",
            "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
        })
    }
}

fn ask(target: &Target, verb: Verb) -> Ask<'_> {
    let itself = target.group.is_empty() && target.plural == "namespaces";
    let namespace = if itself { &target.name } else { &target.namespace };
    Ask {
        verb: verb.name(),
        group: &target.group,
        resource: &target.plural,
        subresource: target.subresource.as_deref().unwrap_or_default(),
        namespace: namespace.as_deref().unwrap_or_default(),
        name: target.name.as_deref().unwrap_or_default(),
    }
}

fn root() -> serde_json::Value {
    let mut paths: Vec<String> =
        ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
            .map(str::to_owned)
            .into();
    for group in discovery::groups().iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|version| format!("/apis/{}/{version}", group.name)));
    }
    paths.sort();
    json!({ "paths": paths })
}
