//! For probes and Prometheus: `/healthz`, `/readyz`, `/metrics` on a port of their own.
//!
//! It runs on the node's thread, so that a node whose thread is stuck does not answer its probe.

pub mod exposition;
pub mod traffic;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpListener;
use tracing::debug;

/// Connections at a time; a probe needs one, and a forgotten one must not cost a descriptor for ever.
const CONNECTIONS_MAX: usize = 64;
/// A client that sends no request for this long is dropped.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a node can say.
pub trait Probed {
    /// Why it cannot serve clients now, if so.
    fn not_ready(&self) -> Option<String>;

    /// The metrics, in Prometheus's text format.
    fn metrics(&self) -> String;
}

/// Answers requests until the task is dropped.
pub async fn listen(listener: TcpListener, node: Rc<dyn Probed>) {
    let open = Rc::new(());
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                debug!(%error, "a probe's connection failed");
                tokio::time::sleep(Duration::from_millis(100)).await; // out of descriptors, perhaps
                continue;
            }
        };
        if Rc::strong_count(&open) > CONNECTIONS_MAX {
            continue;
        }
        let (node, open) = (node.clone(), open.clone());
        tokio::task::spawn_local(async move {
            let service = service_fn(move |request| {
                let response = answer(&request, &*node);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .keep_alive(false) // an empty node that becomes a member must not go on answering as the empty one
                .header_read_timeout(PATIENCE)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                debug!(%error, "a probe went away");
            }
            drop(open);
        });
    }
}

fn answer(request: &Request<Incoming>, node: &dyn Probed) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_string());
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "ok\n".to_string()),
        "/readyz" => match node.not_ready() {
            None => text(StatusCode::OK, "ready\n".to_string()),
            Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        },
        "/metrics" => text(StatusCode::OK, node.metrics()),
        "/" => text(StatusCode::OK, "warlock: /healthz /readyz /metrics\n".to_string()),
        other => {
            text(StatusCode::NOT_FOUND, format!("no {other}; there are /healthz, /readyz and /metrics\n"))
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
