// What each TypeScript client is asked to do: the counterpart of tour.py. argv[2] is its JSON object, argv[3] the
// folder whose node_modules hold the client.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

export const asked = JSON.parse(process.argv[2]);
export const load = createRequire(`${process.argv[3]}/`);

const CODE = { code: "print(6 * 7)" };
const BLANK = { code: " " };
const SLOW = { code: "import time; print('before', flush=True); time.sleep(60)", timeout_s: 1 };
const ENDLESS = { code: "import time; time.sleep(120)" };

const say = (told) => process.stdout.write(`${JSON.stringify(told)}\n`);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const go = async () => {
  const { value } = await lines.next();
  if (value !== "go") throw new Error(`expected go, not ${value}`);
};

// call: (arguments, options) => promise of the result as on the wire
async function walk(client, call) {
  say({ names: (await client.listTools()).tools.map((tool) => tool.name) });
  say({ call: await call(CODE) });
  say({ error: await call(BLANK) });
  say({ timeout: await call(SLOW) });
  await go(); // no jail is left of what was before
  const controller = new AbortController();
  const cancelled = call(ENDLESS, { signal: controller.signal }).then(
    () => { throw new Error("answered, though cancelled"); },
    (error) => error,
  );
  await go();
  controller.abort("enough");
  await cancelled;
  say({ cancelled: true });
  await go(); // still connected: going away must not be what ends the call
  say({ after: await call(CODE) });
}

export async function main(client, transport, call) {
  try {
    await client.connect(transport);
    await walk(client, call);
    await client.close();
    process.exit(0);
  } catch (error) {
    console.error(error);
    process.exit(1);
  }
}
