//! A gateway in a folder of its own, and the door to its admin tools.

use portcullis_admin::{Actor, Channel, Invoker};
use portcullis_audit::EventName;
use portcullis_gateway::control::AdminOptions;
use portcullis_gateway::{Gateway, GatewayOptions};
use portcullis_governance::operator::{Method, OperatorProof, Separation};
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub(crate) struct House {
    pub(crate) gateway: Gateway,
    pub(crate) invoker: Invoker,
    pub(crate) folder: tempfile::TempDir,
    admin: AdminOptions,
}

impl House {
    pub(crate) async fn new() -> Self {
        Self::administered(AdminOptions::default()).await
    }

    pub(crate) async fn administered(admin: AdminOptions) -> Self {
        Self::in_folder(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(), admin).await
    }

    async fn in_folder(folder: tempfile::TempDir, admin: AdminOptions) -> Self {
        let options = GatewayOptions {
            segment_bytes: 8 << 20,
            admin: admin.clone(),
            ..GatewayOptions::new(folder.path())
        };
        let gateway = Gateway::start(options).await.unwrap();
        let invoker = Invoker::new(gateway.control.clone()).unwrap();
        Self { gateway, invoker, folder, admin }
    }

    /// The same after a restart.
    pub(crate) async fn again(self) -> Self {
        let Self { gateway, folder, admin, invoker } = self;
        drop(invoker);
        gateway.finish().await;
        Self::in_folder(folder, admin).await
    }

    pub(crate) async fn call(&self, tool: &str, args: &str) -> Value {
        self.call_as(Some(&operator("ada")), tool, args).await
    }

    pub(crate) async fn call_as(&self, actor: Option<&Actor>, tool: &str, args: &str) -> Value {
        let raw = RawValue::from_string(args.to_owned()).unwrap();
        let envelope = self.invoker.call(tool, &raw, actor, Channel::Operator).await;
        serde_json::from_str(&envelope.to_json()).unwrap()
    }

    /// An admin tool, with a confirmation and a reason.
    pub(crate) async fn act(&self, who: &str, tool: &str, args: Value) -> Value {
        self.call_as(Some(&operator(who)), tool, &guarded(args).to_string()).await
    }

    pub(crate) fn events(&self, name: EventName) -> Vec<Value> {
        let records = portcullis_audit::read(&self.folder.path().join("audit")).unwrap();
        records.map(Result::unwrap).filter(|record| record.event == name).map(|record| record.data).collect()
    }

    pub(crate) async fn end(self) {
        self.gateway.finish().await;
    }
}

pub(crate) fn guarded(mut args: Value) -> Value {
    args["confirm"] = json!(true);
    args["reason"] = json!("for a test");
    args
}

pub(crate) fn operator(name: &str) -> Actor {
    Actor::operator(OperatorProof::authenticated(name, Method::Uid, Separation::SameUid))
}
