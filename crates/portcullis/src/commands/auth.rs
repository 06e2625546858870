//! `portcullis auth …`: logins at the issuers of servers (PRO-35). What a login leaves is kept by the gateway, and shown to
//! that one server; no command prints it.

use std::process::{ExitCode, Stdio};
use std::time::Duration;

use portcullis_core::ErrorCode;
use portcullis_governance::broker::grant::{Grant, Provider, Vouched};
use portcullis_upstream::oauth::OAuthError;
use portcullis_upstream::oauth::discovery::{Discovered, discover, token_endpoint_of};
use portcullis_upstream::oauth::login::{Client, Known, Login, client_credentials, client_document, vouched};
use portcullis_upstream::web::Web;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use super::Context;
use super::mcp::text;
use crate::cli::{AuthCommand, AuthLoginArgs};
use crate::failure::Failure;
use crate::identity::{Passphrase, new_credential};
use crate::operator::Request;
use crate::output::table;

/// How long somebody may take to log in.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// Where somebody comes back to, on this machine.
const CALLBACK: &str = "/callback";

pub(super) async fn run(context: &Context<'_>, command: AuthCommand) -> Result<ExitCode, Failure> {
    match command {
        AuthCommand::Login(args) => login(context, *args).await?,
        AuthCommand::Status => {
            let secrets = context.ask(&Request::SecretList).await?;
            let kept = secrets.as_array().into_iter().flatten().filter(|secret| secret["kind"] == "oauth2");
            let logins: Vec<Value> = kept.map(described).collect();
            context.output.result(&json!(logins), render_status);
        }
        AuthCommand::Logout { server, reason } => {
            let name = format!("oauth.{server}");
            context.ask(&Request::SecretRemove { name, reason }).await?;
            let gone = json!({"server": server, "state": "logged out"});
            context.output.result(&gone, |gone| format!("logged out: {}", text(&gone["server"])));
        }
        AuthCommand::ClientDocument { at } => {
            let redirect = Url::parse(&format!("http://127.0.0.1{CALLBACK}")).expect("a URL");
            let document = client_document(&at, &[redirect]);
            context
                .output
                .result(&document, |document| serde_json::to_string_pretty(document).unwrap_or_default());
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn login(context: &Context<'_>, args: AuthLoginArgs) -> Result<(), Failure> {
    let server = match &args.url {
        Some(url) => url.clone(),
        None => registered(context, &args.server).await?,
    };
    let secret = match args.client_secret_fd {
        Some(fd) => Some(String::from_utf8_lossy(&new_credential(Some(fd))?.bytes()).into_owned()),
        None => None,
    };
    let key = match args.client_key_fd {
        Some(fd) => Some(String::from_utf8_lossy(&new_credential(Some(fd))?.bytes()).into_owned()),
        None => None,
    };
    let known = Known {
        id: args.client_id.clone(),
        secret,
        key,
        document: context.config.upstream.client_document.clone(),
    };
    let web = Web::toward(&server).await;
    let discovered = discover(&web, &server).await.map_err(failure)?;
    let scope = args.scope.clone();
    let vouched_by = vouched_by(&args).await?;
    let by_itself = args.client_credentials || vouched_by.is_some();
    let grant = if by_itself {
        // Nobody comes back, so there is nowhere to come back to.
        let nowhere = Url::parse(&format!("http://127.0.0.1{CALLBACK}")).expect("a URL");
        let client = Client::at(&web, &discovered.issuer, known, &nowhere).await.map_err(failure)?;
        let granted = match vouched_by {
            Some(by) => vouched(&web, discovered, client, scope, by, args.dpop).await,
            None => client_credentials(&web, discovered, client, scope, args.dpop).await,
        };
        granted.map_err(failure)?
    } else {
        in_the_browser(context, &args, &web, discovered, known, scope).await?
    };
    let shown = json!({
        "server": args.server, "issuer": grant.issuer, "resource": grant.resource, "scope": grant.scope,
        "expires_at": grant.expires_at, "renews": grant.refresh_token.is_some() || by_itself,
        "bound": grant.dpop_key.is_some(),
    });
    let value = Passphrase::found(String::from_utf8_lossy(&grant.written()).into_owned());
    let name = format!("oauth.{}", args.server);
    let kept = context.ask(&Request::SecretList).await?;
    let again = kept.as_array().into_iter().flatten().any(|secret| secret["name"] == name.as_str());
    let request = match again {
        true => Request::SecretRotate { name, value },
        false => Request::SecretSet { class: name.clone(), name, kind: "oauth2".into(), value },
    };
    context.ask(&request).await?;
    context.output.result(&shown, |shown| {
        format!("logged in: {} at {}", text(&shown["server"]), text(&shown["issuer"]))
    });
    Ok(())
}

/// Who says who we are, if somebody else does: a file that the gateway reads again for each renewal, so by its full path.
async fn vouched_by(args: &AuthLoginArgs) -> Result<Option<Vouched>, Failure> {
    let (field, path) = match (&args.workload_token_file, &args.identity_token_file) {
        (Some(path), _) => ("workload-token-file", path),
        (None, Some(path)) => ("identity-token-file", path),
        (None, None) => return Ok(None),
    };
    let found = std::fs::canonicalize(path).map_err(|error| Failure::field(field, error.to_string()))?;
    let file = found.into_os_string().into_string();
    let file = file.map_err(|_| Failure::field(field, "the path is not UTF-8"))?;
    let provider = match (&args.identity_provider, &args.identity_client_id) {
        (Some(url), Some(client_id)) => {
            let web = Web::toward(url).await;
            let token_endpoint = token_endpoint_of(&web, url).await.map_err(failure)?;
            Some(Provider { token_endpoint: token_endpoint.into(), client_id: client_id.clone() })
        }
        _ => None,
    };
    Ok(Some(Vouched { file, provider }))
}

/// Sends somebody to log in, and waits until they come back.
async fn in_the_browser(
    context: &Context<'_>,
    args: &AuthLoginArgs,
    web: &Web,
    discovered: Discovered,
    known: Known,
    scope: Option<String>,
) -> Result<Grant, Failure> {
    let unusable =
        |error: std::io::Error| Failure::field("port", format!("cannot listen on this machine: {error}"));
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await.map_err(unusable)?;
    let port = listener.local_addr().map_err(unusable)?.port();
    let redirect = Url::parse(&format!("http://127.0.0.1:{port}{CALLBACK}")).expect("a URL");
    let client = Client::at(web, &discovered.issuer, known, &redirect).await.map_err(failure)?;
    let login = Login::begin(discovered, client, redirect.clone(), scope, args.dpop).map_err(failure)?;
    let address = login.address().map_err(failure)?;
    context.output.note(format!("Log in here, on this machine:\n\n  {address}\n"));
    if !args.no_browser {
        open_browser(&address);
    }
    let came_back = tokio::time::timeout(PATIENCE, come_back(&listener, &redirect)).await;
    let came_back =
        came_back.map_err(|_| Failure::unavailable("nobody came back from the login in five minutes"))?;
    login.finish(web, &came_back).await.map_err(failure)
}

fn open_browser(address: &Url) {
    let has_screen = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    if has_screen {
        // Whoever has none follows the address that was printed.
        let mut command = std::process::Command::new("xdg-open");
        let _ = command
            .arg(address.as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
    }
}

/// The address somebody was sent back to. Whatever else knocks is sent away.
async fn come_back(listener: &TcpListener, redirect: &Url) -> Url {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let asked = tokio::time::timeout(Duration::from_secs(5), asked_for(stream, redirect)).await;
        if let Ok(Some(url)) = asked {
            return url;
        }
    }
}

async fn asked_for(stream: TcpStream, redirect: &Url) -> Option<Url> {
    let mut reader = BufReader::new(stream.take(16 << 10));
    let mut line = String::new();
    reader.read_line(&mut line).await.ok()?;
    let target = line.strip_prefix("GET ")?.split(' ').next()?.to_owned();
    loop {
        line.clear();
        if reader.read_line(&mut line).await.ok()? <= 2 {
            break;
        }
    }
    let found = redirect
        .join(&target)
        .ok()
        .filter(|url| url.origin() == redirect.origin() && url.path() == CALLBACK && url.query().is_some());
    let (status, words) = match found {
        Some(_) => ("200 OK", "This is done here. Go back to the terminal."),
        None => ("404 Not Found", "Nothing is here."),
    };
    let reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{words}",
        words.len()
    );
    let mut stream = reader.into_inner().into_inner();
    let _ = stream.write_all(reply.as_bytes()).await;
    let _ = stream.shutdown().await;
    found
}

/// Where a registered server is.
async fn registered(context: &Context<'_>, server: &str) -> Result<Url, Failure> {
    let shown = context.ask(&Request::McpShow { name: server.to_owned() }).await?;
    let url = shown["transport"]["url"].as_str().or_else(|| shown["url"].as_str());
    url.and_then(|url| Url::parse(url).ok()).ok_or_else(|| {
        Failure::field("server", "it is not reached over HTTP; only such servers have an issuer")
    })
}

fn failure(error: OAuthError) -> Failure {
    let code = match error {
        OAuthError::Web(_) => ErrorCode::UpstreamUnavailable,
        OAuthError::NotWanted => ErrorCode::Conflict,
        OAuthError::Refused(_) => ErrorCode::UpstreamError,
        OAuthError::Denied(_) => ErrorCode::PolicyDenied,
    };
    Failure::new(code, error.to_string())
}

fn described(secret: &Value) -> Value {
    let server = secret["name"].as_str().unwrap_or_default().trim_start_matches("oauth.");
    json!({"server": server, "version": secret["version"], "age_days": secret["age_days"]})
}

fn render_status(logins: &Value) -> String {
    let logins = logins.as_array().map(Vec::as_slice).unwrap_or_default();
    if logins.is_empty() {
        return "nobody logged in at any server; `portcullis auth login SERVER` does".into();
    }
    let rows = logins.iter().map(|login| {
        vec![text(&login["server"]), login["version"].to_string(), format!("{} d", login["age_days"])]
    });
    table(&["server", "renewed", "age"], rows.collect())
}
