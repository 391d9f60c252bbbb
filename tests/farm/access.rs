//! Logins: passwords, tokens, TLS and files that nsc writes, with servers that require them.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::json;

use super::*;

/// Asks, with no login, with a wrong one and with the right one, and expects what becomes of it.
fn only_whom_it_knows(farm: &Farm, right: &str, wrong: &str) {
    fs::write(farm.path("login"), right).unwrap();
    fs::write(farm.path("wrong"), wrong).unwrap();
    for words in [&["jobs"][..], &["workers"], &["worker"], &["jobs", "--farm-credentials", "wrong"]] {
        let output = farm.output(words);
        assert_eq!(output.status.code(), Some(1));
        let said = stderr(&output);
        assert!(said.contains("wants another user, password or token"), "{words:?}: {said}");
        assert!(said.contains("--farm-credentials FILE") && !said.contains(wrong), "{words:?}: {said}");
    }
    farm.said(&["jobs", "--farm-credentials", "login"]);
}

#[test]
fn a_server_that_wants_a_password_gets_it_from_a_file_and_says_so_without_one() {
    let Some(mut farm) = Farm::away(&["--user", "me", "--pass", "s3cret"]) else { return };
    farm.serve();
    only_whom_it_knows(&farm, "me:s3cret\n", "me:wr0ng\n");
    let wrong = farm.output(&["jobs", "--farm", &format!("nats://me:wr0ng@127.0.0.1:{}", farm.port)]);
    let said = stderr(&wrong);
    assert!(said.contains("--farm-credentials") && !said.contains("wr0ng"), "{said}");
    let without = farm.command(&["jobs"]).env_remove("LOCKON_FARM").output().unwrap();
    assert_eq!(without.status.code(), Some(2));
    assert!(stderr(&without).contains("give --farm nats://HOST"), "{}", stderr(&without));
}

#[test]
fn a_password_in_an_address_without_a_scheme_is_not_shown() {
    let Some(mut farm) = Farm::away(&["--user", "me", "--pass", "s3cret"]) else { return };
    farm.address = format!("me:s3cret@127.0.0.1:{}", farm.port);
    let said = stderr(&farm.output(&["jobs"]));
    assert!(said.contains(&format!("***@127.0.0.1:{}", farm.port)) && !said.contains("s3cret"), "{said}");
    farm.serve();
    let _worker = farm.worker("one", &[]);
    farm.wait("it is ready", || farm.log().contains("at a time"));
    assert!(!farm.log().contains("s3cret"), "{}", farm.log());
    for address in ["nats:/me:s3cret@127.0.0.1", "", ",", "nats://", " "] {
        let refused = farm.output(&["jobs", "--farm", address]);
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(2), "{address}: {said}");
        assert!(said.contains("nats://HOST") && !said.contains("s3cret"), "{address}: {said}");
    }
}

#[test]
fn no_log_of_the_client_shows_the_login_of_an_address() {
    for (words, login) in
        [(&["--user", "me", "--pass", "s3cret"][..], "me:s3cret"), (&["--auth", "s3cret"], "s3cret")]
    {
        let Some(mut farm) = Farm::away(words) else { return };
        farm.address = format!("nats://{login}@127.0.0.1:{}", farm.port);
        let logged = |words: &[&str], level: &str| {
            let output = farm.command(words).env("RUST_LOG", level).output().unwrap();
            let said = stderr(&output);
            assert!(!said.contains("s3cret"), "{words:?}: {said}");
            assert!(said.contains("connecting to server"), "{words:?}: {said}");
            output.status.code()
        };
        // The client logs the address of a server that does not answer.
        assert_eq!(logged(&["jobs"], "trace"), Some(1));
        assert_eq!(logged(&["jobs", "-vv"], ""), Some(1));
        farm.serve();
        let output = farm.command(&["jobs"]).env("RUST_LOG", "trace").output().unwrap();
        assert!(output.status.success() && !stderr(&output).contains("s3cret"), "{}", stderr(&output));
    }
}

#[test]
fn a_server_that_wants_a_token_gets_it_from_a_file() {
    let Some(mut farm) = Farm::away(&["--auth", "t0ken"]) else { return };
    farm.serve();
    only_whom_it_knows(&farm, "t0ken\n", "an0ther\n");
}

/// A JWT, as an operator of NATS signs it with `nsc`; the signature is Ed25519.
fn signed(by: &KeyPair, of: &KeyPair, kind: &str, says: Value) -> String {
    let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let mut says = says;
    says["type"] = kind.into();
    says["version"] = 2.into();
    let claims = json!({
        "jti": "one", "iat": 1_700_000_000, "iss": by.public_key(), "sub": of.public_key(), "name": kind,
        "nats": says,
    });
    let text = format!("{}.{}", encode(&json!({ "typ": "JWT", "alg": "ed25519-nkey" })), encode(&claims));
    let signature = BASE64_URL_SAFE_NO_PAD.encode(by.sign(text.as_bytes()).unwrap());
    format!("{text}.{signature}")
}

/// A `.creds` file of a user of that account.
fn creds(account: &KeyPair) -> String {
    let user = KeyPair::new_user();
    let says = json!({ "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1 });
    format!(
        "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        signed(account, &user, "user", says),
        user.seed().unwrap()
    )
}

#[test]
fn a_server_whose_operator_signs_users_wants_the_file_that_nsc_writes() {
    let Some(mut farm) = Farm::away(&[]) else { return };
    let (operator, system, account) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let unlimited: serde_json::Map<_, _> = [
        "subs",
        "data",
        "payload",
        "imports",
        "exports",
        "conn",
        "leaf",
        "mem_storage",
        "disk_storage",
        "streams",
        "consumer",
    ]
    .into_iter()
    .map(|name| (name.to_owned(), json!(-1)))
    .chain([("wildcards".to_owned(), json!(true))])
    .collect();
    let says = json!({ "limits": unlimited, "default_permissions": { "pub": {}, "sub": {} } });
    let accounts = [&system, &account].map(|it| {
        // The account that the server itself uses keeps nothing.
        let mut says = says.clone();
        if it.public_key() == system.public_key() {
            for name in ["mem_storage", "disk_storage", "streams", "consumer"] {
                says["limits"][name] = 0.into();
            }
        }
        format!("{}: {}", it.public_key(), signed(&operator, it, "account", says))
    });
    let config = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{\n{}\n}}\n",
        signed(&operator, &operator, "operator", json!({})),
        system.public_key(),
        accounts.join("\n")
    );
    fs::write(farm.path("nats.conf"), config).unwrap();
    farm.words = vec!["-c".into(), farm.path("nats.conf").to_str().unwrap().into()];
    farm.serve();
    only_whom_it_knows(&farm, &creds(&account), &creds(&KeyPair::new_account()));
}

/// Runs openssl in the farm's folder.
fn openssl(farm: &Farm, words: &str) {
    let output = Command::new("openssl").args(words.split_whitespace()).current_dir(farm.dir.path()).output();
    let output = output.expect("openssl is installed (scripts/setup --to-test)");
    assert!(output.status.success(), "openssl {words}: {}", stderr(&output));
}

#[test]
fn a_server_with_tls_is_known_by_its_authority_and_knows_its_clients_by_theirs() {
    let Some(mut farm) = Farm::away(&[]) else { return };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&farm, &format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
    fs::write(farm.path("names"), "subjectAltName=IP:127.0.0.1,DNS:worker").unwrap();
    for who in ["server", "client"] {
        openssl(&farm, &format!("req {key} -keyout {who}.key -out {who}.csr -subj /CN={who}"));
        openssl(
            &farm,
            &format!(
                "x509 -req -in {who}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out {who}.pem -extfile names"
            ),
        );
    }
    let path = |name: &str| farm.path(name).to_str().unwrap().to_owned();
    let files = ["server.pem", "server.key", "ca.pem"].map(path);
    farm.words =
        ["--tls", "--tlscert", &files[0], "--tlskey", &files[1], "--tlscacert", &files[2], "--tlsverify"]
            .map(str::to_owned)
            .into();
    farm.serve();
    let known = ["jobs", "--farm-ca", "ca.pem"];
    for (words, reason) in [
        (&["jobs"][..], "no TLS with the farm's server"),
        (&known[..], "no TLS with the farm's server"),
        (&["jobs", "--farm-ca", "none.pem"], "none.pem"),
    ] {
        let output = farm.output(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(stderr(&output).contains(reason), "{words:?}: {}", stderr(&output));
    }
    let own = ["--farm-cert", "client.pem", "--farm-key", "client.key"];
    farm.said(&[&known[..], &own].concat());
    let encrypted = format!("tls://127.0.0.1:{}", farm.port);
    farm.said(&[&known[..], &own, &["--farm", &encrypted]].concat());
}
