//! Contestant: rmcp, the official Rust SDK, on tokio's current-thread runtime and non-blocking stdio.
//!
//!     rmcp_server --transport stdio|http --port N --mode session-json|session-sse|stateless --tools N --more

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use axum::serve::ListenerExt;
use rmcp::handler::server::router::tool::{ToolRoute, ToolRouter};
use rmcp::handler::server::tool::{schema_for_output, schema_for_type};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::*;
use rmcp::service::{Peer, RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::transport::io::stdio_pipes;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt, tool, tool_handler, tool_router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const STATIC_URI: &str = "bench://static";
const LARGEST: usize = 64 << 20;
const RECORDS: usize = 1000;

static STATIC_TEXT: LazyLock<String> = LazyLock::new(|| "The same text at every reading. ".repeat(5));

#[derive(Deserialize, JsonSchema)]
struct Numbers {
    a: i64,
    b: i64,
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Wait {
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Steps {
    count: u32,
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Query {
    query: String,
    #[serde(default = "ten")]
    limit: i64,
    #[serde(default)]
    exact: bool,
    labels: Option<Vec<String>>,
}

fn ten() -> i64 {
    10
}

/// What a tool promises to give, for its output schema.
#[derive(Serialize, JsonSchema)]
struct Given<T> {
    result: T,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Record {
    number: usize,
    name: String,
    score: f64,
    tags: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Noted {
    #[serde(flatten)]
    record: Record,
    note: Option<String>,
}

fn record(number: usize) -> Record {
    let tags = vec!["alpha".into(), "beta".into(), format!("t{number}")];
    Record { number, name: format!("entry number {number}"), score: number as f64 * 1.5, tags }
}

static RECORDED: LazyLock<Vec<Record>> = LazyLock::new(|| (0..RECORDS).map(record).collect());
static NOTED: LazyLock<Vec<Noted>> =
    LazyLock::new(|| (0..RECORDS).map(|number| Noted { record: record(number), note: None }).collect());

/// Give a value as text and as structured content.
fn answer(text: String, value: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json!({ "result": value }));
    result
}

fn listed<T: Serialize>(values: &[T]) -> CallToolResult {
    answer(serde_json::to_string(values).unwrap(), serde_json::to_value(values).unwrap())
}

fn ok() -> CallToolResult {
    answer("ok".into(), "ok".into())
}

/// Who hears of updates: sessions that subscribed, and streams that listen.
#[derive(Default)]
struct Listeners {
    sessions: Mutex<Vec<Peer<RoleServer>>>,
    streams: Mutex<HashMap<String, SubscriptionSink>>,
}

#[derive(Clone)]
struct Bench {
    router: Arc<ToolRouter<Bench>>,
    listeners: Arc<Listeners>,
}

#[tool_router]
impl Bench {
    #[tool(description = "Add two integers.", output_schema = schema_for_output::<Given<i64>>())]
    async fn add(&self, Parameters(Numbers { a, b }): Parameters<Numbers>) -> CallToolResult {
        answer((a + b).to_string(), (a + b).into())
    }

    #[tool(description = "Add two integers in a plain function.", output_schema = schema_for_output::<Given<i64>>())]
    fn add_sync(&self, Parameters(Numbers { a, b }): Parameters<Numbers>) -> CallToolResult {
        answer((a + b).to_string(), (a + b).into())
    }

    #[tool(description = "Return the text back.", output_schema = schema_for_output::<Given<String>>())]
    async fn echo(&self, Parameters(Text { text }): Parameters<Text>) -> CallToolResult {
        answer(text.clone(), text.into())
    }

    #[tool(description = "Answer later.", output_schema = schema_for_output::<Given<String>>())]
    async fn wait(&self, Parameters(Wait { ms }): Parameters<Wait>) -> CallToolResult {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        ok()
    }

    #[tool(description = "Return a thousand records.", output_schema = schema_for_output::<Given<Vec<Record>>>())]
    async fn records(&self) -> CallToolResult {
        listed(&RECORDED)
    }

    #[tool(description = "Return a thousand records without notes.", output_schema = schema_for_output::<Given<Vec<Noted>>>())]
    async fn records_null(&self) -> CallToolResult {
        listed(&NOTED)
    }

    #[tool(description = "Report progress so many times.", output_schema = schema_for_output::<Given<String>>())]
    async fn steps(
        &self,
        Parameters(Steps { count }): Parameters<Steps>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let token = context.meta.get_progress_token().ok_or(ErrorData::invalid_params("no progress token", None))?;
        for step in 1..=count {
            let notice = ProgressNotificationParam::new(token.clone(), f64::from(step)).with_total(f64::from(count));
            if context.peer.notify_progress(notice).await.is_err() {
                return Err(ErrorData::internal_error("the client is gone", None));
            }
        }
        Ok(ok())
    }

    #[tool(description = "Tell who listens that the text changed.", output_schema = schema_for_output::<Given<String>>())]
    async fn bump(&self) -> CallToolResult {
        let sessions = self.listeners.sessions.lock().unwrap().clone();
        for session in sessions {
            let _ = session.notify_resource_updated(ResourceUpdatedNotificationParam::new(STATIC_URI)).await;
        }
        let streams: Vec<_> = self.listeners.streams.lock().unwrap().values().cloned().collect();
        for stream in streams {
            let _ = stream.notify_resource_updated(STATIC_URI).await;
        }
        ok()
    }
}

async fn look_up(Parameters(Query { query, .. }): Parameters<Query>) -> CallToolResult {
    answer(query.clone(), query.into())
}

#[tool_handler(router = self.router)]
impl ServerHandler for Bench {
    fn get_info(&self) -> ServerConfig {
        let offered = ServerCapabilities::builder().enable_tools().enable_resources().enable_resources_subscribe().build();
        ServerConfig::new(offered).with_server_info(Implementation::new("bench", "1"))
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let id = format!("{:?}", context.request_context().id);
        self.listeners.streams.lock().unwrap().insert(id.clone(), context.sink().clone());
        context.cancelled().await;
        self.listeners.streams.lock().unwrap().remove(&id);
        Ok(())
    }

    #[allow(deprecated)]
    async fn subscribe(&self, _: SubscribeRequestParams, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.listeners.sessions.lock().unwrap().push(context.peer.clone());
        Ok(())
    }

    async fn read_resource(
        &self,
        _: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(ReadResourceResult::new(vec![ResourceContents::text(STATIC_TEXT.clone(), STATIC_URI)]).into())
    }
}

/// Offer the tools, all of them or the common ones; a long list has exactly the tools it was asked for.
fn offered(extra: usize, more: bool) -> ToolRouter<Bench> {
    let mut router = Bench::tool_router();
    if extra > 0 {
        router.remove_route("bump");
    }
    if !more {
        for name in ["wait", "records", "records_null", "steps"] {
            router.remove_route(name);
        }
    }
    for number in 0..extra {
        let about = format!(
            "Look something up in collection {number}.\n\nGives the first entries that fit the query, as text."
        );
        let mut tool = Tool::new(format!("look_up_{number:04}"), about, JsonObject::new());
        tool.input_schema = schema_for_type::<Query>();
        tool.output_schema = Some(schema_for_output::<Given<String>>());
        router.add_route(ToolRoute::new(tool, look_up));
    }
    router
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, usual: &str| {
        let at = words.iter().position(|word| word == name);
        at.and_then(|at| words.get(at + 1)).cloned().unwrap_or(usual.into())
    };
    let more = words.iter().any(|word| word == "--more");
    let router = Arc::new(offered(option("--tools", "0").parse().unwrap(), more));
    let bench = Bench { router, listeners: Arc::default() };
    if option("--transport", "stdio") == "stdio" {
        bench.serve(stdio_pipes()).await.unwrap().waiting().await.unwrap();
        return;
    }
    let mode = option("--mode", "session-json");
    let config = StreamableHttpServerConfig::default()
        .with_json_response(mode != "session-sse")
        .with_legacy_session_mode(mode != "stateless")
        .with_max_request_body_bytes(LARGEST);
    let service: StreamableHttpService<Bench, LocalSessionManager> =
        StreamableHttpService::new(move || Ok(bench.clone()), Default::default(), config);
    let address = format!("127.0.0.1:{}", option("--port", "0"));
    let listener = tokio::net::TcpListener::bind(address).await.unwrap().tap_io(|connection| {
        let _ = connection.set_nodelay(true);
    });
    axum::serve(listener, axum::Router::new().route_service("/mcp", service)).await.unwrap();
}
