//! Values that lie in the kernel's keyring, or that a program has (SBX-55).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::{CANARY, Host, bearer, nowhere, scene, strs};
use crate::evil::{ask, outcome, secret};
use crate::support::Home;

fn configure(home: &Home, backend: &str) {
    let file = home.path().join("portcullis.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}[secrets]\nbackend = \"{backend}\"\n")).unwrap();
}

#[test]
fn a_credential_in_the_keyring_is_lent_and_gone_when_it_is_removed() {
    // SBX-55, SBX-56
    let host = Host::new();
    let (home, _evil) = scene(&host);
    configure(&home, "keyring");
    secret(&home, "set github --class issues.read", CANARY);
    let vault = fs::read_to_string(home.path().join("keys/vault.json")).unwrap();
    assert!(vault.contains("\"lies\":\"keyring\"") && !vault.contains("\"sealed\""), "{vault}");
    let daemon = home.serve();
    let call = || outcome(&ask(&daemon, &home, "evil__act", &strs(&bearer(&host, "api.example"))));
    assert_eq!(call()["worked"], true);
    assert!(host.heard()[0].contains(&format!("Bearer {CANARY}")), "{:?}", host.heard());
    secret(&home, "rotate github", "canary-rotated-7f7f7f");
    assert_eq!(home.json(&["secret", "list"])[0]["version"], 2);
    call();
    assert!(host.heard()[1].contains("Bearer canary-rotated"), "{:?}", host.heard());
    home.json(&["secret", "rm", "github", "--reason", "done"]);
    assert_eq!(home.json(&["secret", "list"]), json!([]));
    daemon.stop();
    nowhere(&home);
    home.verify();
}

#[test]
fn a_program_that_has_the_values_is_asked_and_never_told() {
    // SBX-55, SBX-56
    let host = Host::new();
    let (home, _evil) = scene(&host);
    let (program, value) = (home.beside("values"), home.beside("github.1"));
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {0}/argv\ncat {0}/$PORTCULLIS_SECRET_NAME.$PORTCULLIS_SECRET_VERSION\n",
        value.parent().unwrap().display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    configure(&home, &format!("command:{} --quietly", program.display()));

    // It takes no value, and says what to do; nor does it have what it does not have.
    let offered = home.beside("value");
    fs::write(&offered, CANARY).unwrap();
    let line = format!(
        "exec '{}' --home '{}' --output json secret set github --class issues.read --fd 3 3< '{}'",
        env!("CARGO_BIN_EXE_portcullis"),
        home.path().display(),
        offered.display()
    );
    let refused = std::process::Command::new("/bin/sh").args(["-c", &line]).output().unwrap();
    let said =
        String::from_utf8_lossy(&refused.stdout).into_owned() + &String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.status.code() == Some(7) && said.contains("--kept") && !said.contains("canary"),
        "{said}"
    );
    let kept = ["secret", "set", "github", "--class", "issues.read", "--kept"];
    let missing = home.fails(&kept);
    assert_eq!((missing.0, &missing.1["field"]), (7, &json!("value")), "{missing:?}");
    assert_eq!(home.json(&["secret", "list"]), json!([]));

    fs::write(&value, format!("{CANARY}\n")).unwrap();
    home.json(&kept);
    let daemon = home.serve();
    let call = || ask(&daemon, &home, "evil__act", &strs(&bearer(&host, "api.example")));
    assert_eq!(outcome(&call())["worked"], true);
    assert!(host.heard()[0].contains(&format!("Bearer {CANARY}")), "{:?}", host.heard());
    fs::write(home.beside("github.2"), "canary-rotated-7f7f7f").unwrap();
    assert_eq!(home.json(&["secret", "rotate", "github", "--kept"])["version"], 2);
    call();
    assert!(host.heard()[1].contains("Bearer canary-rotated"), "{:?}", host.heard());
    // It is asked by its own arguments and nothing else.
    let argv = fs::read_to_string(home.beside("argv")).unwrap();
    assert!(argv.lines().all(|line| line == "--quietly"), "{argv}");
    home.json(&["secret", "rm", "github", "--reason", "done"]);
    assert_eq!(home.json(&["secret", "list"]), json!([]));
    daemon.stop();
    nowhere(&home);
    home.verify();
}
