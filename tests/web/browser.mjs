// Looks at every page in Chromium as a person would; prints what is wrong, as JSON.
// node browser.mjs LINK FOLDER: the page's link, and the folder whose node_modules has playwright-core and axe-core.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

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

for (const colorScheme of ["light", "dark"]) {
  const page = await opened({ colorScheme, bypassCSP: true, viewport: { width: 1280, height: 900 } });
  for (const path of pages) {
    await page.goto(base + path);
    await page.evaluate(axe);
    const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
    for (const one of found.violations) {
      if (["serious", "critical"].includes(one.impact)) wrong.push(`axe, ${colorScheme} ${path}: ${one.id} ${one.nodes[0].html.slice(0, 160)}`);
    }
  }
  await page.context().close();
}

for (const width of [390, 1280, 1920]) {
  const page = await opened({ viewport: { width, height: 900 } });
  for (const path of pages) {
    await page.goto(base + path);
    const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    if (over > 0) wrong.push(`${path} is ${over} pixels wider than ${width}`);
  }
  await page.context().close();
}

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
await plain.goto(base);
await plain.locator("li.need-question textarea").fill("Blue");
await plain.locator("li.need-question button").click();
if (!(await plain.getByText("Answered.").count())) wrong.push("no answer without JavaScript");

await browser.close();
console.log(JSON.stringify([...new Set(wrong)]));
