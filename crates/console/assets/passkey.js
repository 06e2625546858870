// Security keys. A form with data-passkey="sign" is sent once its key has signed what the server asks for; one with
// data-passkey="make" enrols a key by the link that led here. Nothing here decides anything: the server checks it all.
"use strict";

const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
const text = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
const TIMEOUT = 110000;

async function ask(path, body) {
  const answer = await fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

// Has a key sign; `allow` is the one that must, or nothing for any that this host knows.
async function sign(asked) {
  const credential = await navigator.credentials.get({
    publicKey: {
      challenge: bytes(asked.challenge), rpId: asked.rp_id, userVerification: "required", timeout: TIMEOUT,
      allowCredentials: asked.allow ? [{ type: "public-key", id: bytes(asked.allow) }] : [],
    },
  });
  return JSON.stringify({
    id: text(credential.rawId), client_data: text(credential.response.clientDataJSON),
    authenticator_data: text(credential.response.authenticatorData), signature: text(credential.response.signature),
  });
}

async function signed(form) {
  const { challenge, rp, allow } = form.dataset;
  const asked = challenge ? { challenge, rp_id: rp, allow } : await ask("/login/key/begin", {});
  const passkey = await sign(asked);
  if (asked.random) form.elements.passkey_challenge.value = asked.random;
  form.elements.passkey.value = passkey;
  form.submit();
}

// The secret of the link is behind the #, which is never sent with an address.
const token = location.pathname === "/enrol" ? location.hash.slice(1) : "";
if (token) history.replaceState(null, "", "/enrol");

async function made(form) {
  const asked = await ask("/enrol/begin", { token });
  const credential = await navigator.credentials.create({
    publicKey: {
      challenge: bytes(asked.challenge), rp: { id: asked.rp_id, name: "Portcullis" },
      user: { id: bytes(asked.user), name: asked.name, displayName: asked.name },
      pubKeyCredParams: asked.algorithms.map((alg) => ({ type: "public-key", alg })),
      excludeCredentials: asked.known.map((id) => ({ type: "public-key", id: bytes(id) })),
      authenticatorSelection: { residentKey: "required", requireResidentKey: true, userVerification: "required" },
      attestation: "none", timeout: TIMEOUT,
    },
  });
  const told = await ask("/enrol/finish", {
    token, label: form.elements.label.value, client_data: text(credential.response.clientDataJSON),
    attestation: text(credential.response.attestationObject),
  });
  location.assign(told.next);
}

for (const form of document.querySelectorAll("form[data-passkey]")) {
  const say = (words) => {
    const problem = form.querySelector("[data-problem]");
    problem.textContent = words;
    problem.hidden = !words;
  };
  const start = async () => {
    if (!window.PublicKeyCredential) {
      say("This browser has no security keys here. They need https, or http://localhost.");
      return;
    }
    say("");
    try {
      await (form.dataset.passkey === "make" ? made(form) : signed(form));
    } catch (error) {
      say(error.name === "NotAllowedError" ? "The key did not answer, or was told not to. Try again." : error.message);
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    start();
  });
  if (form.dataset.challenge) start();
}
