// What pages do besides being read: they follow what happens, and keys do what the mouse does.
// Every act works without this file; nothing here decides anything.
"use strict";

// A page that shows something live says what, as in <main data-live="approvals">. Parts of it ask again by htmx when
// the event `changed:<topic>` reaches the body.
const live = document.querySelector("[data-live]");
if (live && window.EventSource) {
  const events = new EventSource("/events");
  for (const topic of ["approvals", "calls", "world"]) {
    events.addEventListener(topic, () => document.body.dispatchEvent(new CustomEvent("changed-" + topic)));
  }
  // The session is over: to the login, and back here afterwards.
  events.addEventListener("ended", () => {
    events.close();
    location.reload();
  });
  let lost = false;
  events.addEventListener("error", () => { lost = true; });
  // What was missed while the connection was away is asked for when it is back.
  events.addEventListener("open", () => {
    if (lost) document.body.dispatchEvent(new CustomEvent("changed-" + live.dataset.live));
    lost = false;
    live.dataset.connected = "yes";
  });
  addEventListener("pagehide", () => events.close());
}

// Keys. An element with data-key is pressed, followed or focused by that key, unless somebody is typing; of several,
// the one in the chosen card, else the first.
const typing = (element) => element.matches("input:not([type=checkbox]):not([type=radio]), textarea, select");

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && document.activeElement) {
    document.activeElement.blur();
    return;
  }
  if (typing(event.target)) return;
  if (event.key === "j" || event.key === "k") {
    move(event.key === "j" ? 1 : -1);
    event.preventDefault();
    return;
  }
  const chosen = document.activeElement && document.activeElement.closest("[data-card]");
  const selector = `[data-key="${CSS.escape(event.key)}"]`;
  const target = (chosen && chosen.querySelector(selector)) || document.querySelector(selector);
  if (!target) return;
  event.preventDefault();
  if (typing(target)) target.focus();
  else target.click();
});

// From card to card.
function move(step) {
  const cards = [...document.querySelectorAll("[data-card]")];
  if (!cards.length) return;
  const now = cards.indexOf(document.activeElement && document.activeElement.closest("[data-card]"));
  const next = now < 0 ? 0 : Math.min(cards.length - 1, Math.max(0, now + step));
  cards[next].focus();
}

// Times are shown as the operator's clock has them; the markup has them in full.
function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (isNaN(at)) continue;
    time.title = time.dateTime;
    const today = at.toDateString() === new Date().toDateString();
    const clock = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
    time.textContent = today ? clock : at.toLocaleDateString([], { month: "short", day: "numeric" }) + " " + clock;
  }
}
localTimes(document);
document.addEventListener("htmx:after:swap", () => localTimes(document));

// A form that needs a second confirmation shows it before it is sent; without scripts the server asks for it.
document.addEventListener("submit", (event) => {
  for (const button of event.target.querySelectorAll("button[type=submit]")) {
    // Not at once: the button that was pressed must still be sent with the form.
    setTimeout(() => { button.disabled = true; setTimeout(() => { button.disabled = false; }, 3000); });
  }
});
