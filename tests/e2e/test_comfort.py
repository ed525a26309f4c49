"""C4-C8, C10-C22: ordinary Python that must just work, with nothing on stderr."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.client import Answer, Bare, StdioClient

POOL = """
import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory

def square(n):
    return n * n

def put(queue, lock):
    with lock:
        queue.put("from the child")

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context = mp.get_context(method)
        with context.Pool(2) as pool:
            assert pool.map(square, range(5)) == [0, 1, 4, 9, 16], method
        queue, lock = context.Queue(), context.Lock()
        child = context.Process(target=put, args=(queue, lock))
        child.start()
        assert queue.get(timeout=20) == "from the child"
        child.join()
    with ProcessPoolExecutor(2) as pool:
        assert list(pool.map(square, range(3))) == [0, 1, 4]
    block = shared_memory.SharedMemory(create=True, size=64)
    block.buf[0] = 7
    again = shared_memory.SharedMemory(name=block.name)
    assert again.buf[0] == 7
    again.close(); block.close(); block.unlink()
    print("ok")
"""

PROGRAMS = {
    "c4 multiprocessing": (POOL, "ok\n"),
    "c5 who am I": ("""
import getpass, os, pathlib, pwd
entry = pwd.getpwuid(os.getuid())
home = pathlib.Path.home()
assert getpass.getuser() == entry.pw_name == "sandbox", entry
assert str(home) == os.path.expanduser("~") == entry.pw_dir == os.environ["HOME"]
(home / "x").write_text("x")
(home / ".cache").mkdir()
import grp; assert grp.getgrgid(os.getgid()).gr_name == "sandbox"
print("ok")
""", "ok\n"),
    "c6 time zones": ("""
import datetime, time, zoneinfo
assert time.tzname[0] == "UTC", time.tzname
moment = datetime.datetime(2026, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
assert moment.utcoffset() == datetime.timedelta(hours=2)
print(datetime.datetime(2026, 1, 1).astimezone().tzname())
""", "UTC\n"),
    "c7 text is UTF-8": ("""
import locale, subprocess, sys
print("żółć 漢字 🎉")
open("datei-ä.txt", "w").write("ß")
assert open("datei-ä.txt", "rb").read() == "ß".encode()
child = "import sys; print('ü'); open('kind.txt', 'w').write('é')"
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True).stdout, end="")
assert locale.getpreferredencoding() == "UTF-8" and sys.getfilesystemencoding() == "utf-8"
""", "żółć 漢字 🎉\nü\n"),
    "c11 much output": ("print('x' * 69999)", "x" * 69999 + "\n"),
    "c12 a long program": ("# " + "x" * 200_000 + "\nprint('ran')", "ran\n"),
    "c13 inspect": ("""
import code, inspect, linecache, pdb
def f(a, b=2):
    return a + b
class C:
    def m(self): return 1
print(inspect.getsource(f), end="")
assert "def m" in inspect.getsource(C)
assert code.InteractiveConsole and "/workspace" not in code.__file__
""", "def f(a, b=2):\n    return a + b\n"),
    "c15 files and devices": ("""
import os, pathlib, sqlite3, subprocess, tempfile
assert subprocess.run(["true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode == 0
assert len(open("/dev/urandom", "rb").read(8)) == 8 and open("/dev/zero", "rb").read(2) == bytes(2)
with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as file:
    assert folder.startswith("/tmp") and file.write(b"x") == 1
with sqlite3.connect("data.db") as db:
    db.execute("create table t (a)"); db.execute("insert into t values (1)")
    print(db.execute("select * from t").fetchall())
db.close()
for path in ("/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/1"):
    assert os.path.exists(path), path
pathlib.Path("deep/er").mkdir(parents=True); os.rename("deep/er", "moved"); os.symlink("moved", "link"); os.link("data.db", "hard")
""", "[(1,)]\n"),
    "c15 asyncio and subprocesses": ("""
import asyncio
async def main():
    child = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b""
    writer.close(); server.close()
    print(out.decode(), end="")
asyncio.run(main())
""", "hi\n"),
    "c15 http on the loopback": ("""
import http.server, ssl, threading, urllib.request
ssl.create_default_context()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"served")
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").read().decode())
server.shutdown(); server.server_close()
""", "served\n"),
    "c19 libraries": ("""
import io, sys
import jinja2, numpy, pandas, yaml
from PIL import Image, ImageDraw
frame = pandas.read_csv(sys.stdin)
assert frame["b"].sum() == 6
try:
    frame.to_parquet("x.parquet")
except ImportError:
    print("no parquet")
assert yaml.safe_load(yaml.safe_dump({"a": [1, "ä"]})) == {"a": [1, "ä"]}
assert jinja2.Template("{{ x }}!").render(x=1) == "1!"
picture = Image.new("RGB", (60, 20), "white")
ImageDraw.Draw(picture).text((2, 2), "text", fill="black")
assert picture.getextrema()[0] != (255, 255)
picture.save("p.png"); frame.to_csv("o.csv")
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.title("Größe"); plt.savefig("plot.png")
assert numpy.linalg.inv(numpy.eye(50)).trace() == 50
""", "no parquet\n"),
    "c21 the end of a program": ("""
import atexit, logging, threading, time
atexit.register(print, "handler")
def late():
    time.sleep(0.3)
    print("thread")
threading.Thread(target=late).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
logging.basicConfig(stream=__import__("sys").stdout); logging.warning("logged")
print("main")
""", "WARNING:root:logged\nmain\nthread\nhandler\n"),
    "c22 locale and unicode": ("""
import locale, unicodedata
locale.setlocale(locale.LC_ALL, "")
assert unicodedata.name("ß") == "LATIN SMALL LETTER SHARP S"
print("bücher.example".encode("idna").decode())
""", "xn--bcher-kva.example\n"),
    "signals and timers": ("""
import signal, time
signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
signal.setitimer(signal.ITIMER_REAL, 0.05); time.sleep(0.2)
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
""", "alarm\ninterrupted\n"),
    "pickle and dataclasses of main": ("""
import dataclasses, pickle, typing
@dataclasses.dataclass
class P:
    x: "int" = 1
print(pickle.loads(pickle.dumps(P(3))), typing.get_type_hints(P), P.__module__)
""", "P(x=3) {'x': <class 'int'>} __main__\n"),
    "a module beside the program": ("""
open("helper.py", "w").write("value = 5")
import helper
print(helper.value, helper.__file__)
""", "5 /workspace/helper.py\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_just_works(sandbox: StdioClient, name: str) -> None:
    code, stdout = PROGRAMS[name]
    answer = sandbox.run(code, stdin="a,b\n1,2\n3,4\n", timeout_s=60)
    assert (answer.exit_code, answer.stderr, answer.stdout) == (0, "", stdout)


def test_c8_the_cpu_limit_is_told_where_python_can(sandbox: StdioClient) -> None:
    code = "import json, os, sys; print(json.dumps([sys.version_info[:2], os.cpu_count(), os.environ['OMP_NUM_THREADS'], os.environ['PYTHON_CPU_COUNT']]))"
    version, count, threads, told = sandbox.probe(code)
    assert (threads, told) == ("1", "1")
    assert version < [3, 13] or count == 1


def test_c10_what_was_printed_before_the_deadline_is_kept(sandbox: StdioClient) -> None:
    answer = sandbox.run("print('a'); import time; time.sleep(99)", timeout_s=1)
    assert (answer.timed_out, answer.exit_code, answer.stdout) == (True, -1, "a\n")


def test_c14_input_without_stdin_ends_at_once(sandbox: StdioClient) -> None:
    answer = sandbox.run("input('? ')")
    assert answer.stdout == "? "
    assert answer.stderr.splitlines()[-1] == "EOFError: EOF when reading a line"
    assert answer.duration_ms < 5000


def both(sandbox: StdioClient, bare: Bare, code: str, folder: Path) -> tuple[Answer, str, int]:
    script = folder / "main.py"
    script.write_text(code)
    done = bare.run_file(script)
    stderr = done.stderr.replace(str(folder), "/workspace")
    answer = sandbox.run(code)
    return replace(answer, stderr=without_depth(answer.stderr)), without_depth(stderr), done.returncode


def without_depth(text: str) -> str:
    """The jail's own frames, below the program's, leave a few less for a runaway recursion."""
    return re.sub(r"repeated \d+ more times", "repeated", text)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = Path("/var/tmp") / f"mcp_exec_compare_{os.getpid()}"
    found.mkdir(exist_ok=True)
    found.chmod(0o755)
    return found


BROKEN = [
    "def f():\n    return {}['missing']\n\nf()\n",
    "x = 1\n  y = 2\n",
    "def f(:\n    pass\n",
    "print('unclosed\n",
    "if True:\nprint(1)\n",
    "for x in range(3)\n    pass\n",
    "\tx = 1\n        y = 2\n",
    "return 5\n",
    "await x\n",
    "import does_not_exist\n",
    "import json\njson.loads('{')\n",
    "raise ValueError('two\\nlines')\n",
    "assert 1 == 2, 'no'\n",
    "x = [\n    1,\n    1 / 0,\n]\n",
    "class A:\n    def __repr__(self): raise RuntimeError('r')\nprint(A())\n",
    "import sys\nsys.setrecursionlimit(200)\ndef f(): f()\nf()\n",
    "from __future__ import annotations\nfrom __future__ import nonsense\n",
    "print('é' * 3)\nñ = undefined_ñ\n",
]


@pytest.mark.parametrize("code", BROKEN)
def test_c16_c17_errors_are_shown_as_cpython_shows_them(
    sandbox: StdioClient, bare: Bare, code: str, folder: Path
) -> None:
    answer, stderr, status = both(sandbox, bare, code, folder)
    assert (answer.exit_code, answer.stderr) == (status, stderr)


ABOUT = """
import json, os, sys, threading, signal, asyncio
print(json.dumps({
    "argv": sys.argv, "name": __name__, "file": os.path.basename(__file__), "path0": os.path.basename(sys.path[0]),
    "isatty": [sys.stdin.isatty(), sys.stdout.isatty()], "flags": str(sys.flags), "orig_argv": len(sys.orig_argv) > 0,
    "encodings": [sys.stdin.encoding, sys.stdout.encoding, sys.stderr.encoding, sys.stdout.errors, sys.stderr.errors],
    "spec": __spec__ is None, "doc": __doc__, "package": __package__, "loader": type(__loader__).__name__,
    "main": sys.modules["__main__"].__dict__ is globals(), "globals": sorted(k for k in globals() if k.startswith("__")),
    "builtins": type(__builtins__).__name__, "thread": threading.current_thread().name, "main thread": threading.main_thread().ident == threading.get_ident(),
    "sigint": str(signal.getsignal(signal.SIGINT)).split(" at")[0], "sigpipe": str(signal.getsignal(signal.SIGPIPE)),
    "sigterm": str(signal.getsignal(signal.SIGTERM)), "cached": __cached__, "executable": os.path.dirname(sys.executable), "prefix": sys.prefix,
    "mode": [sys.stdin.mode, sys.stdout.mode], "names": [sys.stdin.name, sys.stdout.name, sys.stderr.name],
    "recursion": sys.getrecursionlimit(), "dont_write_bytecode": sys.dont_write_bytecode, "umask": os.umask(0o22),
    "gc": __import__("gc").isenabled() and __import__("gc").get_threshold(), "switch": sys.getswitchinterval(),
    "excepthook": sys.excepthook is sys.__excepthook__, "cwd": os.path.basename(os.getcwd()) in ("workspace",),
}))
"""


def test_c18_the_program_is_main_py(sandbox: StdioClient, bare: Bare, folder: Path) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    workspace.chmod(0o755)
    (workspace / "main.py").write_text(ABOUT)
    expected = json.loads(bare.run_file(workspace / "main.py").stdout)
    seen = sandbox.probe(ABOUT)
    assert seen.pop("argv") == ["main.py"] == expected.pop("argv")
    differing = {name: (seen[name], expected[name]) for name in seen if seen[name] != expected[name]}
    assert differing == {}


def test_c18_globals_and_modules_of_ours_are_not_seen(sandbox: StdioClient) -> None:
    code = """
import gc, json, sys
modules = [name for name in sys.modules if "mcp_exec" in name]
print(json.dumps([sorted(globals()), modules, [p for p in sys.path if "mcp_exec" in p and "site-packages" not in p]]))
"""
    names, modules, paths = sandbox.probe(code)
    assert set(names) == {"gc", "json", "sys", "modules"} | {
        "__name__", "__file__", "__builtins__", "__doc__", "__package__", "__loader__", "__spec__", "__cached__", "__annotations__",
    }  # fmt: skip
    assert modules == paths == []


def test_nothing_tells_how_the_launcher_was_started(sandbox: StdioClient) -> None:
    code = """
import json, os, platform, site, sys
import matplotlib, matplotlib.style
def words(path): return open(path).read().split("\\0")[:-1]
print(json.dumps({
    "argv": sys.orig_argv[1:] == ["main.py"] and sys.orig_argv[0] == sys.executable,
    "cmdline": words("/proc/self/cmdline") == sys.orig_argv == words("/proc/1/cmdline"),
    "environ": sorted(word.split("=")[0] for word in words("/proc/self/environ")), "node": platform.node(),
    "places": [site.getuserbase(), site.getusersitepackages(), matplotlib.get_configdir(), matplotlib.get_cachedir(), os.path.expanduser("~")],
}))
"""
    seen = sandbox.probe(code)
    assert (seen["argv"], seen["cmdline"], seen["node"]) == (True, True, "mcp-exec")
    assert set(seen["environ"]) <= {"LANG", "PYTHON_CPU_COUNT"}
    assert {place.split("/")[1] for place in seen["places"]} <= {"workspace", "tmp"}


def test_c20_random_numbers_differ_between_runs(sandbox: StdioClient) -> None:
    code = "import json, random, secrets, uuid, numpy, os\nprint(json.dumps([random.random(), float(numpy.random.rand()), float(numpy.random.default_rng().random()), str(uuid.uuid4()), secrets.token_hex(), os.urandom(4).hex(), __import__('tempfile').mktemp()]))"
    seen = [sandbox.probe(code) for _ in range(4)]
    for column in zip(*seen, strict=True):
        assert len(set(column)) == len(seen), column


def test_two_streams_keep_their_own_order(sandbox: StdioClient) -> None:
    answer = sandbox.run("import sys\nfor n in range(1000): print(n); print(-n, file=sys.stderr)")
    assert re.findall(r"\d+", answer.stdout) == [str(n) for n in range(1000)]
    assert answer.stderr.count("\n") == 1000


def test_output_leaves_line_by_line(sandbox: StdioClient) -> None:
    code = "import os, sys\nfor n in range(5): print(n)\nsys.stdout.write('unfinished')\nos.kill(os.getpid(), 9)"
    assert sandbox.run(code).stdout == "0\n1\n2\n3\n4\n"


def test_the_interpreter_is_the_configured_one(sandbox: StdioClient) -> None:
    version = sandbox.probe("import json, sys; print(json.dumps(sys.version_info[:3]))")
    assert version[0] == sys.version_info[0]
