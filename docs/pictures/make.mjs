// node make.mjs LINK FOLDER OUT: pictures of two pages; FOLDER is where node_modules has playwright-core.
import { createRequire } from "node:module";

const [, , link, folder, out] = process.argv;
const { chromium } = createRequire(`${folder}/package.json`)("playwright-core");
const base = new URL(link).origin;
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-quic",
  "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });
const page = await browser.newPage({ viewport: { width: 1100, height: 820 } });
await page.goto(link);
await page.waitForTimeout(1000);
await page.screenshot({ path: `${out}/now.png` });
await page.goto(`${base}/tasks/plan`);
await page.waitForTimeout(500);
await page.screenshot({ path: `${out}/task.png` });
await browser.close();
