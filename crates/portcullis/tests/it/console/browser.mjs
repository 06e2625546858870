// A browser for tests: one request per line on stdin, one answer per line on stdout.
// Started by browser.rs with the folder of installed packages as its argument.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const modules = process.argv[2];
const { chromium } = createRequire(join(modules, "x"))("playwright-core");
const axe = readFileSync(join(modules, "axe-core/axe.min.js"), "utf8");

const browser = await chromium.launch({
  executablePath: process.env.PORTCULLIS_CHROMIUM || "/usr/bin/chromium",
  // Chromium's own sandbox cannot be had as root; what it loads here is ours.
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
let context, page;
let errors = [];
let keys, key;
let bytes = 0;
const TIMEOUT = 20000;

const acts = {
  // A fresh profile: nobody is logged in.
  async open({ width, dark, scripts }) {
    if (context) await context.close();
    context = await browser.newContext({
      viewport: { width, height: width < 600 ? 844 : 900 },
      colorScheme: dark ? "dark" : "light",
      javaScriptEnabled: scripts,
      bypassCSP: false,
    });
    page = await context.newPage();
    keys = key = undefined;
    page.setDefaultTimeout(TIMEOUT);
    errors = [];
    page.on("console", (message) => { if (message.type() === "error") errors.push(message.text()); });
    page.on("pageerror", (error) => errors.push(String(error)));
    const session = await context.newCDPSession(page);
    await session.send("Network.enable");
    session.on("Network.loadingFinished", (event) => { bytes += event.encodedDataLength; });
  },
  // Security keys that only this browser has: one is plugged in at a time. `unsure`: it cannot tell who uses it.
  async plug({ unsure }) {
    if (!keys) {
      keys = await context.newCDPSession(page);
      await keys.send("WebAuthn.enable");
    }
    if (key) await keys.send("WebAuthn.removeVirtualAuthenticator", { authenticatorId: key });
    const options = {
      protocol: "ctap2", transport: "usb", hasResidentKey: true, hasUserVerification: !unsure, isUserVerified: !unsure,
      automaticPresenceSimulation: true,
    };
    key = (await keys.send("WebAuthn.addVirtualAuthenticator", { options })).authenticatorId;
  },
  async credentials() { return (await keys.send("WebAuthn.getCredentials", { authenticatorId: key })).credentials; },
  async addCredential({ credential }) { await keys.send("WebAuthn.addCredential", { authenticatorId: key, credential }); },
  // What page scripts send is caught instead, and told: the body of the next request to `path`.
  async intercept({ path }) {
    context.caught = new Promise((caught) => {
      page.route("**" + path, async (route) => {
        if (route.request().method() !== "POST" || !(route.request().postData() || "").includes("client_data")) return route.continue();
        const sent = { body: route.request().postData(), headers: await route.request().allHeaders() };
        await route.fulfill({ status: 200, contentType: "text/html", body: "<p id=caught>caught</p>" });
        await page.unroute("**" + path);
        caught(sent);
      });
    });
  },
  async caught() { return context.caught; },
  async evaluate({ script }) { return page.evaluate(script); },
  async look({ width, dark }) {
    await page.setViewportSize({ width, height: width < 600 ? 844 : 900 });
    await page.emulateMedia({ colorScheme: dark ? "dark" : "light" });
  },
  async goto({ url }) {
    bytes = 0;
    const response = await page.goto(url, { waitUntil: "load" });
    return response ? response.status() : 0;
  },
  async bytes() { return bytes; },
  async url() { return page.url(); },
  async title() { return page.title(); },
  async fill({ at, text }) { await page.fill(at, text); },
  async click({ at }) { await page.click(at); },
  async press({ key }) { await page.keyboard.press(key); },
  async type({ text }) { await page.keyboard.type(text); },
  async wait({ at }) { await page.waitForSelector(at, { state: "attached" }); },
  async gone({ at }) { await page.waitForSelector(at, { state: "detached" }); },
  async waitUrl({ contains }) { await page.waitForURL((url) => url.href.includes(contains)); },
  async text({ at }) { return page.innerText(at); },
  async count({ at }) { return page.locator(at).count(); },
  async focused() { return page.evaluate(() => document.activeElement && (document.activeElement.name || document.activeElement.id)); },
  async mark() { await page.evaluate(() => { window.notReloaded = true; }); },
  async marked() { return page.evaluate(() => window.notReloaded === true); },
  async errors() { return errors; },
  // Whether anything is wider than the window.
  async overflow() { return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth); },
  async shot({ path }) { await page.screenshot({ path, fullPage: true }); },
  // Violations that matter, in words. Evaluated by the debugger, so the page's own policy stays in force.
  async axe() {
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    const grave = violations.filter((found) => ["serious", "critical"].includes(found.impact));
    return grave.map((found) => `${found.id}: ${found.help} at ${found.nodes.map((node) => node.target.join(" ")).slice(0, 3).join(", ")}`);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let answer;
  try {
    answer = { ok: (await acts[request.do](request)) ?? null };
  } catch (error) {
    answer = { error: `${request.do} ${JSON.stringify(request)}: ${error.message}`, url: page && page.url() };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
await browser.close();
