"""Adapters, driven by the frameworks themselves, and by real servers and workers where that makes a difference."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
import requests
from conftest import free_port, wait_for_port
from throttlekit import Budget, Guard, Limiter, NotReady, Outbound, Policy, SharedLimiter, Store

Names = Callable[[], str]

PYTHON = sys.executable


def statuses(get: Callable[[], Any], count: int) -> list[int]:
    return [get().status_code for _ in range(count)]


def asgi_client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test")


async def hello(scope: Any, receive: Any, send: Any) -> None:
    if scope.get("path") == "/fail":
        raise RuntimeError("failed")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def test_asgi_responds_with_429_and_headers() -> None:
    from throttlekit.contrib.asgi import AdmissionMiddleware, header

    app = AdmissionMiddleware(hello, Limiter("2/hour"), key=header("x-api-key"), name="api")
    async with asgi_client(app) as client:
        first = await client.get("/", headers={"x-api-key": "alice"})
        assert first.status_code == 200 and first.headers["ratelimit-policy"] == '"api";q=2'
        assert first.headers["ratelimit"].startswith('"api";r=1;t=')
        assert (await client.get("/", headers={"x-api-key": "alice"})).status_code == 200
        denied = await client.get("/", headers={"x-api-key": "alice"})
        assert denied.status_code == 429 and 1790 <= int(denied.headers["retry-after"]) <= 1800
        assert denied.json()["detail"] == "denied by the rate limit"
        assert (await client.get("/", headers={"x-api-key": "bob"})).status_code == 200


async def test_asgi_holds_a_permit_until_the_response_and_releases_it_after_an_error() -> None:
    from throttlekit.contrib.asgi import AdmissionMiddleware

    guard = Guard(1)

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        assert guard.try_acquire() is None
        await hello(scope, receive, send)

    async with asgi_client(AdmissionMiddleware(slow, guard)) as client:
        assert (await client.get("/")).status_code == 200
    async with asgi_client(AdmissionMiddleware(hello, guard)) as client:
        with pytest.raises(RuntimeError):
            await client.get("/fail")
        assert (await client.get("/")).status_code == 200


async def test_asgi_fails_closed_or_open_in_an_outage() -> None:
    from throttlekit.contrib.asgi import AdmissionMiddleware

    store = Store("redis://127.0.0.1:1", deadline=0.1)
    closed = SharedLimiter(store, "api", "5/minute")
    async with asgi_client(AdmissionMiddleware(hello, closed)) as client:
        denied = await client.get("/")
        assert denied.status_code == 503 and denied.headers["retry-after"] == "1"
    opened = SharedLimiter(store, "api", "5/minute", on_outage="open")
    async with asgi_client(AdmissionMiddleware(hello, opened)) as client:
        assert (await client.get("/")).status_code == 200


async def test_asgi_responds_if_nothing_was_decided(redis_url: str) -> None:
    from throttlekit.contrib.asgi import AdmissionMiddleware

    # No such schema: the store responds, and is misconfigured.
    store = Store(os.environ["THROTTLEKIT_POSTGRES"], deadline=5, schema="missing")
    limiter = SharedLimiter(store, "api", "5/minute")
    async with asgi_client(AdmissionMiddleware(hello, limiter)) as client:
        assert (await client.get("/")).status_code == 503
    async with asgi_client(AdmissionMiddleware(hello, limiter, on_error="allow")) as client:
        assert (await client.get("/")).status_code == 200


async def test_fastapi_depends_on_a_limiter() -> None:
    from fastapi import Depends, FastAPI
    from throttlekit.contrib.fastapi import Admitted

    app = FastAPI()
    limit = Admitted(Limiter("2/hour"), key=lambda request: request.headers.get("x-api-key", ""))

    @app.get("/items", dependencies=[Depends(limit)])
    async def items() -> list[str]:
        return ["a"]

    @app.get("/free")
    async def free() -> str:
        return "ok"

    async with asgi_client(app) as client:
        responses = [await client.get("/items") for _ in range(3)]
        assert [response.status_code for response in responses] == [200, 200, 429]
        assert "ratelimit" in responses[0].headers and "retry-after" in responses[2].headers
        assert (await client.get("/free")).status_code == 200


FASTAPI_APP = """
import os
from fastapi import FastAPI
from throttlekit import Budget, SharedLimiter, Store
from throttlekit.contrib.asgi import AdmissionMiddleware, header

limiter = SharedLimiter(Store(os.environ["URL"], deadline=5), os.environ["NAME"], Budget.per_day(20), leased=True)
app = FastAPI()
app.add_middleware(AdmissionMiddleware, limiter=limiter, key=header("x-api-key"))

@app.get("/")
async def root() -> dict[str, int]:
    return {"pid": os.getpid()}
"""

FLASK_APP = """
import os
from flask import Flask
from throttlekit import Budget, SharedLimiter, Store
from throttlekit.contrib.wsgi import AdmissionMiddleware, header

limiter = SharedLimiter(Store(os.environ["URL"], deadline=5), os.environ["NAME"], Budget.per_day(20))
limiter.check("warm")  # before the fork: workers must not use this connection
app = Flask(__name__)
app.wsgi_app = AdmissionMiddleware(app.wsgi_app, limiter, key=header("x-api-key"))

@app.get("/")
def root() -> dict[str, int]:
    return {"pid": os.getpid()}
"""


@contextlib.contextmanager
def served(folder: Path, source: str, command: list[str], port: int, env: dict[str, str]) -> Iterator[str]:
    (folder / "service.py").write_text(source)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [PYTHON, "-m", *command], cwd=folder, env={**os.environ, **env}, stdout=log, stderr=log
        )
    try:
        wait_for_port(port, 60, process)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(30)


def crowd(url: str, count: int) -> list[httpx.Response]:
    headers = {"x-api-key": "alice"}
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda _: httpx.get(url, headers=headers, timeout=30), range(count)))


def test_uvicorn_serves_a_leased_limit(tmp_path: Path, redis_url: str, name: Names) -> None:
    port = free_port()
    command = ["uvicorn", "service:app", "--port", str(port)]
    with served(tmp_path, FASTAPI_APP, command, port, {"URL": redis_url, "NAME": name()}) as url:
        responses = crowd(url, 40)
    assert sum(response.status_code == 200 for response in responses) == 20
    assert sum(response.status_code == 429 for response in responses) == 20


def test_four_forked_gunicorn_workers_share_a_limit(tmp_path: Path, redis_url: str, name: Names) -> None:
    port = free_port()
    command = ["gunicorn", "--workers", "4", "--preload", "--bind", f"127.0.0.1:{port}", "service:app"]
    with served(tmp_path, FLASK_APP, command, port, {"URL": redis_url, "NAME": name()}) as url:
        responses = crowd(url, 60)
    passed = [response for response in responses if response.status_code == 200]
    assert len(passed) == 20 and sum(response.status_code == 429 for response in responses) == 40


def test_flask_views_are_decorated() -> None:
    from flask import Flask
    from throttlekit.contrib.flask import admitted

    app = Flask(__name__)

    @app.get("/items")
    @admitted(Limiter("2/hour"))
    def items() -> list[str]:
        return ["a"]

    client = app.test_client()
    assert [client.get("/items").status_code for _ in range(3)] == [200, 200, 429]
    assert client.get("/items").headers["retry-after"]


DJANGO = """
import asyncio
import django
from django.conf import settings
from throttlekit import Guard, Limiter
settings.configure(
    ROOT_URLCONF=__name__, SECRET_KEY="x", ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["throttlekit.contrib.django.AdmissionMiddleware"],
    THROTTLEKIT={"limiter": Limiter("3/hour"), "key": lambda request: request.headers.get("x-api-key", "")},
)
django.setup()
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from throttlekit.contrib.django import admitted

limited = Limiter("1/hour")

def view(request):
    return HttpResponse("ok")

@admitted(limited)
def decorated(request):
    return HttpResponse("ok")

@admitted(limited, key=lambda request: "async")
async def decorated_async(request):
    return HttpResponse("ok")

urlpatterns = [path("", view), path("decorated", decorated), path("async", decorated_async)]
client = Client()
responses = [client.get("/") for _ in range(4)]
assert [response.status_code for response in responses] == [200, 200, 200, 429], responses
assert "ratelimit" in responses[0].headers and int(responses[3].headers["retry-after"]) > 1000
key = {"x-api-key": "bob"}
assert [client.get("/decorated", headers=key).status_code for _ in range(2)] == [200, 429]

async def main():
    client = AsyncClient()
    key = {"x-api-key": "carol"}
    assert [(await client.get("/async", headers=key)).status_code for _ in range(2)] == [200, 429]
    assert [(await client.get("/", headers=key)).status_code for _ in range(2)] == [200, 429]

asyncio.run(main())
"""


def test_django_middleware_and_decorator(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(DJANGO)
    subprocess.run([PYTHON, "service.py"], cwd=tmp_path, check=True, timeout=60)


CELERY_APP = """
import os, time
from celery import Celery
from throttlekit import SharedLimiter, Store
from throttlekit.contrib.celery import LimitedTask

app = Celery("service", broker=os.environ["URL"], backend=os.environ["URL"])
app.conf.task_default_queue = os.environ["NAME"]
limiter = SharedLimiter(Store(os.environ["URL"], deadline=5), os.environ["NAME"], "5/second; burst 1")

@app.task(base=LimitedTask, limiter=limiter)
def started() -> float:
    return time.time()
"""


def test_a_celery_worker_keeps_the_rate_over_its_processes(tmp_path: Path, redis_url: str, name: Names) -> None:
    (tmp_path / "service.py").write_text(CELERY_APP)
    env = {**os.environ, "URL": redis_url, "NAME": name(), "PYTHONPATH": str(tmp_path)}
    command = [PYTHON, "-m", "celery", "-A", "service", "worker", "--concurrency", "2", "--loglevel", "WARNING"]
    with (tmp_path / "log").open("w") as log:
        worker = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log, stderr=log)
    call = "import service; print([r.get(timeout=60) for r in [service.started.delay() for _ in range(8)]])"
    try:
        done = subprocess.run([PYTHON, "-c", call], cwd=tmp_path, env=env, check=True, timeout=120, capture_output=True)
    finally:
        worker.terminate()
        worker.wait(60)
    times = sorted(json.loads(done.stdout))
    assert len(times) == 8 and times[-1] - times[0] >= 7 / 5 - 0.25, times


class Provider(BaseHTTPRequestHandler):
    """A provider that refuses the third call for a second."""

    calls: ClassVar[list[float]] = []

    def do_GET(self) -> None:
        Provider.calls.append(time.monotonic())
        refused = len(Provider.calls) == 3
        self.send_response(429 if refused else 200)
        if refused:
            self.send_header("retry-after", "1")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[str]:
    Provider.calls.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_httpx_waits_for_its_limits_and_pauses_after_a_refusal(provider: str) -> None:
    from throttlekit.contrib.httpx import OutboundTransport

    limits = Outbound("provider", requests_per_minute=6_000)
    with httpx.Client(transport=OutboundTransport(limits)) as client:
        assert statuses(lambda: client.get(provider), 4) == [200, 200, 429, 200]
    assert Provider.calls[3] - Provider.calls[2] >= 0.9


async def test_httpx_waits_in_an_event_loop(provider: str) -> None:
    from throttlekit.contrib.httpx import AsyncOutboundTransport

    limits = Outbound("provider", requests_per_minute=6_000, concurrency=1)
    async with httpx.AsyncClient(transport=AsyncOutboundTransport(limits)) as client:
        responses = await asyncio.gather(*(client.get(provider) for _ in range(4)))
    assert sorted(response.status_code for response in responses) == [200, 200, 200, 429]
    assert Provider.calls[3] - Provider.calls[2] >= 0.9


def test_requests_wait_for_their_limits(provider: str) -> None:
    from throttlekit.contrib.requests import OutboundAdapter

    session = requests.Session()
    session.mount("http://", OutboundAdapter(Outbound("provider", requests_per_minute=6_000)))
    assert statuses(lambda: session.get(provider, timeout=10), 4) == [200, 200, 429, 200]
    assert Provider.calls[3] - Provider.calls[2] >= 0.9


def test_a_call_beyond_its_limits_is_not_sent() -> None:
    limits = Outbound("provider", tokens_per_minute=100, max_wait=0.1)
    with limits.until_ready("host", 90) as permit:
        permit.settle(90)
    with pytest.raises(NotReady):
        limits.until_ready("host", 90)


LITELLM_HOOK = """
from throttlekit import Budget, Policy
from throttlekit.contrib.litellm import Limits

limits = Limits(Policy("chat", concurrency=1, rate="3/hour", tokens=Budget.per_day(100_000)))
"""

LITELLM_CONFIG = """
model_list:
  - model_name: fake
    litellm_params:
      model: openai/fake
      api_key: none
      mock_response: "a response of a few words"
litellm_settings:
  callbacks: hook.limits
"""


def test_the_litellm_proxy_is_limited_by_the_hook(tmp_path: Path) -> None:
    (tmp_path / "hook.py").write_text(LITELLM_HOOK)
    (tmp_path / "config.yaml").write_text(LITELLM_CONFIG)
    port, key = free_port(), f"sk-{secrets.token_hex(32)}"
    litellm = str(Path(PYTHON).with_name("litellm"))
    command = [litellm, "--config", "config.yaml", "--port", str(port), "--host", "127.0.0.1"]
    with (tmp_path / "log").open("w") as log:
        settings = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": key, "PYTHONPATH": str(tmp_path)}
        env = {**os.environ, **settings}
        process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log, stderr=log)
    body = {"model": "fake", "messages": [{"role": "user", "content": "hello"}]}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    try:
        wait_for_port(port, 240, process)
        client = httpx.Client(headers={"authorization": f"Bearer {key}"}, timeout=60)
        plain = client.post(url, json=body)
        streamed = client.post(url, json={**body, "stream": True})
        last = [client.post(url, json=body).status_code for _ in range(2)]
    finally:
        process.terminate()
        process.wait(60)
    assert plain.status_code == 200, plain.text
    events = [line.removeprefix("data: ") for line in streamed.text.splitlines() if line.startswith("data: {")]
    text = "".join(json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events)
    assert streamed.status_code == 200 and text == "a response of a few words", streamed.text
    assert last == [200, 429], (tmp_path / "log").read_text()[-2000:]


async def test_the_litellm_hook_settles_what_a_call_used() -> None:
    from types import SimpleNamespace

    from throttlekit.contrib.litellm import Limits

    policy = Policy("chat", concurrency=1, tokens=Budget.per_day(2_000))
    limits, user = Limits(policy), SimpleNamespace(api_key="k")
    data: dict[str, Any] = {"messages": [], "max_tokens": 1_500}
    await limits.async_pre_call_hook(user, None, data, "completion")
    assert policy.admit("other").denied_by == "concurrency"
    response = SimpleNamespace(usage=SimpleNamespace(total_tokens=100))
    await limits.async_post_call_success_hook(data, user, response)
    assert not policy.admit("k", 1_901)
    stream: dict[str, Any] = {"messages": [], "max_tokens": 500}
    await limits.async_pre_call_hook(user, None, stream, "completion")

    async def chunks() -> Any:
        for _ in range(1_000):
            delta = SimpleNamespace(content="x" * 40)
            yield SimpleNamespace(choices=[SimpleNamespace(delta=delta)])

    seen = [chunk async for chunk in limits.async_post_call_streaming_iterator_hook(user, chunks(), stream)]
    assert len(seen) == 190, "1,900 tokens are left, in chunks of ten"
    assert policy.admit("k").denied_by == "cost"
