"""Scenes with the real openai client. Each asserts what it sees; the test starts a gateway of its own for each."""

import json
import os
import re
import sys
import time
import urllib.request

import openai

GATEWAY, ADMIN, MODEL = os.environ["GATEWAY"], os.environ["ADMIN"], os.environ["MODEL"]
METER, RPM, TPM = os.environ["METER"], int(os.environ["RPM"]), int(os.environ["TPM"])
CHUNK = 4
# Of the question below, with what frames it.
PROMPT = 12
# What the model may generate before it notices that nobody listens, on a machine that is busy with other things.
ON_ITS_WAY = 16 * CHUNK
client = openai.OpenAI(base_url=f"{GATEWAY}/v1", api_key="sk-test", max_retries=0, timeout=30)
ASK = dict(model="gpt-4o", messages=[{"role": "user", "content": "Tell me something long."}])
USAGE = dict(stream=True, stream_options={"include_usage": True})
GO_DURATION = re.compile(r"^(\d+h)?(\d+m)?(\d+(\.\d+)?(s|ms))$")


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def books():
    return fetch(f"{ADMIN}/admin/stats")["tenants"]["test"]


def used():
    """What the store has charged the tenant's token budget with."""
    tokens = fetch(f"{ADMIN}/admin/allowances")["test"]["tokens"]
    return tokens["limit"] - tokens["remaining"]


def eventually(holds, what):
    for _ in range(200):
        if holds():
            return
        time.sleep(0.025)
    raise AssertionError(what)


def check_headers(headers, first=False):
    """Each axis by its own limit; after a first call, with what that took."""
    for axis, limit in (("requests", RPM), ("tokens", TPM)):
        assert int(headers[f"x-ratelimit-limit-{axis}"]) == limit, (axis, headers)
        assert 0 <= int(headers[f"x-ratelimit-remaining-{axis}"]) <= limit
        assert GO_DURATION.match(headers[f"x-ratelimit-reset-{axis}"]), headers
    if first:
        requests, tokens = (int(headers[f"x-ratelimit-remaining-{axis}"]) for axis in ("requests", "tokens"))
        # The baselines look again after they have asked, when requests may have come back.
        assert requests == RPM - 1 or METER != "stream" and requests == RPM, headers
        assert tokens <= TPM - (1 if METER == "count" else PROMPT), headers


def read(stream):
    """The text, the last finish_reason and the usage of a stream, and how many chunks had text."""
    text, finish, usage, chunks = "", None, None, 0
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            chunks += bool(choice.delta.content)
            finish = choice.finish_reason or finish
    return text, finish, usage, chunks


def words(text):
    """The mock's tokens are words, each with a space before it."""
    return text.count(" ")


def completion():
    raw = client.chat.completions.with_raw_response.create(**ASK, max_tokens=30)
    check_headers(raw.headers, first=True)
    answer = raw.parse()
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 30 == words(answer.choices[0].message.content)
    assert used() == answer.usage.total_tokens == books()["delivered"]
    try:
        stranger = openai.OpenAI(base_url=f"{GATEWAY}/v1", api_key="sk-unknown", max_retries=0)
        stranger.chat.completions.create(**ASK)
        raise AssertionError("a stranger was let in")
    except openai.AuthenticationError as error:
        assert error.code == "invalid_api_key"
    try:
        client.chat.completions.create(model="gpt-4o", messages="not a list")
        raise AssertionError("nonsense was let in")
    except openai.BadRequestError:
        pass
    assert books()["admitted"] == 1


def stream_only():
    with client.chat.completions.with_streaming_response.create(**ASK, **USAGE) as raw:
        check_headers(raw.headers)
        text, finish, usage, chunks = read(raw.parse())
    assert (finish, words(text), chunks) == ("stop", 50, 13), (finish, words(text), chunks)
    assert usage.completion_tokens == 50
    return usage.total_tokens


def stream():
    total = stream_only()
    assert used() == total == books()["delivered"]
    _, finish, usage, _ = read(client.chat.completions.create(**ASK, stream=True))
    assert finish == "stop" and usage is None, "usage is told only to who asks for it"
    assert used() == 2 * total


def cut():
    text, finish, usage, _ = read(client.chat.completions.create(**ASK, **USAGE, max_tokens=5000))
    assert finish == "length"
    assert usage.completion_tokens == words(text), "what was passed on is what was charged"
    assert 200 <= usage.total_tokens <= 200 + CHUNK - 1, usage
    assert used() == 200 and books()["cut"] == 1
    eventually(lambda: fetch(f"{MODEL}/stats")["abandoned"] == 1, "the model goes on")
    generated = fetch(f"{MODEL}/stats")["generated"]
    assert generated <= usage.completion_tokens + ON_ITS_WAY, generated
    try:
        client.chat.completions.create(**ASK, max_tokens=10)
        raise AssertionError("the budget is spent")
    except openai.RateLimitError as error:
        assert error.type == "tokens" and "200 tokens in 168h0m0s" in error.message, error.message
        assert int(error.response.headers["retry-after"]) >= 1


def denied():
    for _ in range(2):
        client.chat.completions.create(**ASK, max_tokens=5)
    before = used()
    try:
        client.chat.completions.create(**ASK, max_tokens=5)
        raise AssertionError("a third in one minute")
    except openai.RateLimitError as error:
        headers = error.response.headers
        assert error.status_code == 429 and error.code == "rate_limit_exceeded"
        assert error.type == "requests" and "RPM" in error.message, error.message
        check_headers(headers)
        assert headers["x-ratelimit-remaining-requests"] == "0"
        seconds, ms = int(headers["retry-after"]), int(headers["retry-after-ms"])
        assert 1 <= seconds <= 30 and seconds == -(-ms // 1000), (seconds, ms)
    assert used() == before, "a denial costs nothing"
    assert books()["denied"] == {"rate": 1}
    with urllib.request.urlopen(f"{ADMIN}/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    assert 'throttlekit_denied_by_axis_total{policy="test",axis="rate"} 1' in metrics, metrics
    assert 'throttlekit_decisions_total{policy="test",outcome="allowed"} 2' in metrics, metrics


def crowded():
    first = client.chat.completions.create(**ASK, stream=True)
    next(iter(first))
    try:
        client.chat.completions.create(**ASK, max_tokens=5)
        raise AssertionError("two at a time")
    except openai.RateLimitError as error:
        assert error.type == "concurrency" and "concurrency" in error.message, error.message
        assert error.response.headers["retry-after"] == "1"
        check_headers(error.response.headers)
    first.close()
    eventually(lambda: admitted(max_tokens=5), "the slot does not come back")


def admitted(**more):
    try:
        client.chat.completions.create(**ASK, **more)
        return True
    except openai.RateLimitError:
        return False


def gone():
    stream = client.chat.completions.create(**ASK, stream=True)
    seen = ""
    for chunk in stream:
        seen += chunk.choices[0].delta.content or ""
        if words(seen) >= 5 * CHUNK:
            break
    stream.close()
    eventually(lambda: books()["gone"] == 1, "the gateway does not notice")
    eventually(lambda: fetch(f"{MODEL}/stats")["abandoned"] == 1, "the model goes on")
    eventually(lambda: used() == books()["delivered"], "what was set aside does not go back")
    generated, passed_on = fetch(f"{MODEL}/stats")["generated"], books()["delivered"] - PROMPT
    assert words(seen) <= passed_on <= generated <= passed_on + ON_ITS_WAY, (words(seen), passed_on, generated)
    assert books()["delivered_gone"] == books()["delivered"]
    before = used()
    eventually(lambda: admitted(max_tokens=5), "the slot does not come back")
    assert used() == before + PROMPT + 5


SCENES = {scene.__name__: scene for scene in (completion, stream, stream_only, cut, denied, crowded, gone)}

if __name__ == "__main__":
    SCENES[sys.argv[1]]()
    print(f"{sys.argv[1]}: as it should be")
