// Looks at every page in Chromium as a person would; prints what is wrong, as JSON.
// node browser.mjs LINK FOLDER: the page's link, and the folder whose node_modules has playwright-core and axe-core.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const [, , link, folder] = process.argv;
const require = createRequire(`${folder}/package.json`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const base = link.replace(/\/$/, "");
const pages = ["/", "/tasks/lease", "/tasks/paint", "/mail", "/mail/human/ask.paint.s1.7%40hive", "/agents/reviewer", "/knowledge", "/memory",
  "/journal", "/costs?days=365", "/files?path=knowledge/lease.md&first=3&last=3", "/tasks/nothing"];
const wrong = [];

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-quic",
  "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });

async function opened(options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("console", (message) => { if (message.type() === "error" && !/404/.test(message.text())) wrong.push(`console: ${message.text()}`); });
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => { wrong.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => { if (!request.url().startsWith(base) && !request.url().startsWith("data:")) wrong.push(`request: ${request.url()}`); });
  await page.goto(link);
  return page;
}

const looked = await opened({ bypassCSP: true });
for (const path of pages) {
  await looked.goto(base + path);
  for (const width of [390, 1280, 1920]) {
    await looked.setViewportSize({ width, height: 900 });
    const over = await looked.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    if (over > 0) wrong.push(`${path} is ${over} pixels wider than ${width}`);
    const narrow = await looked.evaluate(() => [...document.querySelectorAll(".pair")].filter((one) => one.parentElement.clientWidth < 200).length);
    if (narrow > 0) wrong.push(`${path} at ${width} has ${narrow} narrow fields`);
  }
  await looked.setViewportSize({ width: 1280, height: 900 });
  await looked.evaluate(axe);
  for (const [colorScheme, rules] of [["light", {}], ["dark", { runOnly: ["color-contrast"] }]]) {
    await looked.emulateMedia({ colorScheme });
    const found = await looked.evaluate((rules) => axe.run(document, { resultTypes: ["violations"], ...rules }), rules);
    for (const one of found.violations) {
      if (["serious", "critical"].includes(one.impact)) wrong.push(`axe, ${colorScheme} ${path}: ${one.id} ${one.nodes[0].html.slice(0, 160)}`);
    }
  }
}
await looked.context().close();

const watching = await opened({});
await watching.locator("#board").getByText("Wait for it").first().waitFor();

const keys = await opened({});
await keys.keyboard.press("Tab");
if (!(await keys.evaluate(() => document.activeElement.classList.contains("skip")))) wrong.push("the first stop is not the skip link");
await keys.keyboard.press("Enter");
await keys.locator("details.add summary").focus();
await keys.keyboard.press("Enter");
await keys.keyboard.press("Tab");
await keys.keyboard.type("Does the page show what changes?");
await keys.locator("details.add button.primary").focus();
await Promise.all([keys.waitForURL(/\/tasks\/does-the-page/), keys.keyboard.press("Enter")]);
// The other page shows it without being loaded again, and leaves what is typed there as it is.
await watching.locator("#board").getByText("Does the page show what changes?").waitFor({ timeout: 30000 }).catch(() => wrong.push("no live change"));
await keys.goto(`${base}/?state=done`);
await keys.keyboard.press("j");
await keys.keyboard.press("j");
const outline = await keys.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
if (outline === "none") wrong.push("what has the focus is not marked");
await keys.locator("#board tbody a").first().focus();
await Promise.all([keys.waitForURL(/\/tasks\/lease/), keys.keyboard.press("Enter")]);

const plain = await opened({ javaScriptEnabled: false });
await plain.goto(`${base}/tasks/lease`);
if (!(await plain.getByText("A lease is a right.").count())) wrong.push("nothing is read without JavaScript");
await plain.goto(`${base}/`);
await plain.locator("li.need-question textarea").fill("Blue");
await plain.locator("li.need-question button").click();
if (!(await plain.getByText("Answered.").count())) wrong.push("no answer without JavaScript");

// Another server on this machine, at every name that the page has: what a person's browser brings along tells it nothing.
const asked = [];
const other = createServer((request, answer) => { asked.push(request.url + JSON.stringify(request.headers)); answer.end("<title>Other</title>"); });
await new Promise((resolve) => other.listen(0, "127.0.0.1", resolve));
for (const name of ["127.0.0.1", "localhost"]) {
  const here = base.replace("127.0.0.1", name), there = `http://${name}:${other.address().port}`;
  const page = await (await browser.newContext()).newPage();
  await page.goto(here + "/");
  await page.locator("details.add summary").click();
  await page.locator("details.add textarea").fill(`Go [there](${there}/link), or to <${there}/bare>\n`);
  await page.locator("details.add button.primary").click();
  await page.getByText("waits in the inbox").waitFor();
  await Promise.all([page.waitForURL(`${there}/link`), page.getByRole("link", { name: "there" }).click()]);
  await page.goBack();
  await page.goto(`${there}/typed`);
  await page.context().close();
}
other.close();
const secret = new URL(link).pathname.split("/")[2];
for (const path of ["link", "typed"]) if (asked.filter((one) => one.startsWith(`/${path}`)).length !== 2) wrong.push(`the other server was not asked for ${path}`);
for (const one of asked) if (one.includes(secret) || one.includes(`:${new URL(link).port}`) || one.includes('"cookie"')) wrong.push(`the other server was told: ${one}`);

await browser.close();
console.log(JSON.stringify([...new Set(wrong)]));
