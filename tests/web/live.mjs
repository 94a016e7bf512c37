// Watches the first page while a swarm works, without loading it again; prints what is wrong, as JSON.
// node live.mjs LINK FOLDER N: until N tasks are done. FOLDER as in browser.mjs.
import { createRequire } from "node:module";

const [, , link, folder, count] = process.argv;
const { chromium } = createRequire(`${folder}/package.json`)("playwright-core");
const base = link.replace(/\/$/, "");
const wrong = [];
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-quic",
  "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });
const pages = [];
for (const path of ["/", "/?state=active", "/journal"]) {
  const page = await (await browser.newContext()).newPage();
  let loads = 0;
  page.on("console", (message) => { if (message.type() === "error") wrong.push(`console: ${message.text()}`); });
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("request", (request) => { if (!request.url().startsWith(base) && !request.url().startsWith("data:")) wrong.push(`request: ${request.url()}`); });
  await page.goto(link);
  await page.goto(base + path);
  page.on("framenavigated", () => { loads += 1; });
  pages.push({ page, path, loads: () => loads });
}
console.error("watching");
const states = new Set();
const board = pages[0].page.locator("#board");
const until = Date.now() + 200000;
for (let done = 0; done < Number(count);) {
  if (Date.now() > until) { wrong.push(`only ${done} of ${count} are shown as done`); break; }
  const text = await board.innerText();
  for (const word of ["waiting", "active", "done"]) if (new RegExp(word, "i").test(text)) states.add(word);
  done = await board.locator("tbody tr").filter({ hasText: "Boat" }).filter({ hasText: /done/i }).count();
  await new Promise((resolve) => setTimeout(resolve, 100));
}
for (const { page, path, loads } of pages) {
  if (loads()) wrong.push(`${path} was loaded again`);
  if (path === "/journal" && !/task.done/.test(await page.innerText("body"))) wrong.push("the journal did not move");
}
if (!states.has("done")) wrong.push("no task was done");
await browser.close();
console.log(JSON.stringify([...new Set(wrong)]));
