// Runs each program in a new Pyodide interpreter of one node process. Argument: the path of pyodide.mjs.
import { createInterface } from "node:readline";

const { loadPyodide } = await import(process.argv[2]);

async function run(code, stdin) {
  const python = await loadPyodide();
  const streams = { stdout: [], stderr: [] };
  const collect = (name) => ({ write: (bytes) => (streams[name].push(Buffer.from(bytes)), bytes.length) });
  python.setStdout(collect("stdout"));
  python.setStderr(collect("stderr"));
  let left = Buffer.from(stdin);
  python.setStdin({
    read: (buffer) => {
      const part = left.subarray(0, buffer.length);
      left = left.subarray(part.length);
      buffer.set(part);
      return part.length;
    },
  });
  let exit_code = 0;
  try {
    python.runPython(code);
    python.runPython("import sys; sys.stdout.flush()");
  } catch (error) {
    exit_code = 1;
    streams.stderr.push(Buffer.from(String(error.message)));
  }
  const text = (name) => Buffer.concat(streams[name]).toString();
  return { stdout: text("stdout"), stderr: text("stderr"), exit_code };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { code, stdin } = JSON.parse(line);
  process.stdout.write(JSON.stringify(await run(code, stdin)) + "\n");
}
