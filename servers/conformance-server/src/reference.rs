//! The server: which handler answers what.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompleteResult,
    GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
    Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::task_manager::TaskManager;
use rmcp::{ErrorData, ServerHandler};
use serde_json::json;
use tokio::sync::broadcast;

use crate::Eras;
use crate::asking;
use crate::catalogue::Catalogue;
use crate::state::Seal;

/// Something that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    Tools,
    Prompts,
}

/// The server. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Reference {
    eras: Eras,
    catalogue: Arc<Catalogue>,
    pub(crate) seal: Seal,
    pub(crate) changes: broadcast::Sender<Changed>,
    pub(crate) tasks: TaskManager,
    subscribed: Arc<Mutex<BTreeSet<String>>>,
    /// What comes and goes when somebody triggers a change.
    hidden: Arc<Hidden>,
}

/// Whether the tool and the prompt that come and go are gone.
#[derive(Debug, Default)]
struct Hidden {
    tool: AtomicBool,
    prompt: AtomicBool,
}

/// The name of the tool, and of the prompt, that comes and goes.
const CHANGING: &str = "test_that_comes_and_goes";

impl Reference {
    pub(crate) fn new(eras: Eras) -> Self {
        Self {
            eras,
            catalogue: Arc::new(Catalogue::read()),
            seal: Seal::new(),
            changes: broadcast::channel(16).0,
            tasks: TaskManager::new(),
            subscribed: Arc::default(),
            hidden: Arc::default(),
        }
    }

    /// Changes a list, and says so.
    pub(crate) fn change(&self, what: Changed) {
        let hidden = match what {
            Changed::Tools => &self.hidden.tool,
            Changed::Prompts => &self.hidden.prompt,
        };
        hidden.fetch_xor(true, Ordering::AcqRel);
        let _ = self.changes.send(what);
    }
}

type Context = RequestContext<RoleServer>;

impl ServerHandler for Reference {
    fn get_info(&self) -> ServerConfig {
        let capabilities: ServerCapabilities = serde_json::from_value(json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"subscribe": true},
            "logging": {},
            "completions": {},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        }))
        .expect("capabilities");
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("conformance-server", env!("CARGO_PKG_VERSION"));
        info.instructions = Some("What the conformance suite calls.".into());
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.eras {
            Eras::Both => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
            Eras::Legacy => Cow::Borrowed(ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25)),
            Eras::Modern => Cow::Owned(vec![ProtocolVersion::V_2026_07_28]),
        }
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let gone = self.hidden.tool.load(Ordering::Acquire);
        let listed = self.catalogue.tools.iter().filter(|tool| !(gone && tool.name == CHANGING));
        Ok(ListToolsResult::with_all_items(listed.cloned().collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut request = request;
        loop {
            let answer = self.call(request.clone(), context.clone()).await?;
            // What a client of the old revisions cannot be told with a result it is asked, and the call goes on.
            let CallToolResponse::InputRequired(asked) = answer else { return Ok(answer) };
            if asking::is_newest(&context) {
                return Ok(asked.into());
            }
            request.request_state = asked.request_state.clone();
            request.input_responses = Some(asking::in_the_old_way(&context, asked).await?);
        }
    }

    /// With it the SDK checks the headers that mirror arguments.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.catalogue.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        let gone = self.hidden.prompt.load(Ordering::Acquire);
        let listed = self.catalogue.prompts.iter().filter(|prompt| !(gone && prompt.name == CHANGING));
        Ok(ListPromptsResult::with_all_items(listed.cloned().collect()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let mut request = request;
        loop {
            let answer = crate::prompts::get(&request)?;
            let GetPromptResponse::InputRequired(asked) = answer else { return Ok(answer) };
            if asking::is_newest(&context) {
                return Ok(asked.into());
            }
            request.input_responses = Some(asking::in_the_old_way(&context, asked).await?);
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(self.catalogue.resources.clone()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(self.catalogue.templates.clone()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        crate::resources::read(&request.uri)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let typed = &request.argument.value;
        let values: Vec<&str> =
            ["paris", "park", "party"].into_iter().filter(|word| word.starts_with(typed.as_str())).collect();
        serde_json::from_value(json!({
            "completion": {"values": values, "total": values.len(), "hasMore": false},
            "resultType": "complete",
        }))
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    // The levels are the client's affair: every message of ours is at least `info`.
    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(&self, request: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        self.subscribed.lock().expect("nobody panics with it").insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(&self, request: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        self.subscribed.lock().expect("nobody panics with it").remove(&request.uri);
        Ok(())
    }

    async fn get_task(&self, request: GetTaskParams, _: Context) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(&self, request: UpdateTaskParams, _: Context) -> Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(&self, request: CancelTaskParams, _: Context) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            let changed = tokio::select! {
                changed = changes.recv() => changed,
                () = subscription.cancelled() => return Ok(()),
            };
            // What the subscriber did not ask for is refused by the sink, which is as it should be.
            let _ = match changed {
                Ok(Changed::Tools) => subscription.sink().notify_tool_list_changed().await,
                Ok(Changed::Prompts) => subscription.sink().notify_prompt_list_changed().await,
                Err(broadcast::error::RecvError::Lagged(_)) => Ok(()),
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            };
        }
    }
}
