"""What a client of skills asks for, what it checks, and what it refuses to hand out."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from trimaran import Server, connect
from trimaran.errors import CallError, LocalProtocolError, RemoteProtocolError, TooManyPages, Unsupported
from trimaran.ext import SKILLS_CAPABILITY, SkillRejected, Skills, SkillsClient, SkillTampered
from trimaran.ext.skills.entry import DirectoryParams, SkillParams
from trimaran.protocol.methods import extend
from trimaran.protocol.versions import V2025_11
from trimaran.types import BlobResourceContents, ListParams, TextResourceContents

from .skill_folders import FORMS, PDF, PNG, REFUNDS, manifest, skills_in

ID = "io.modelcontextprotocol/skills"
BOTH = pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])


def listed(uri: str, data: bytes) -> dict[str, Any]:
    return {"uri": uri, "digest": "sha256:" + hashlib.sha256(data).hexdigest(), "size": len(data)}


class Liar:
    """A server that says whatever a test wants about one skill, and counts what is read."""

    def __init__(self, **settings: Any) -> None:
        self.files: dict[str, bytes] = {PDF: manifest("pdf-processing").encode(), FORMS: b"Fill all fields."}
        front = {"name": "pdf-processing", "description": "What it is for."}
        self.entry: dict[str, Any] = {
            "uri": PDF,
            "frontmatter": front,
            "resources": [listed(uri, data) for uri, data in self.files.items()],
        }
        self.entries: list[Any] = [self.entry]
        self.contents: list[Any] | None = None
        self.read: list[str] = []
        self.asked: list[tuple[str, Any]] = []
        self.next_cursor: Any = None
        self.server = Server("liar", version="1", cache_ttl=60)
        self.server.add_resource("skill://{+path}", self._read)
        rows = (("skills/list", ListParams), ("skills/get", SkillParams), ("resources/directory/read", DirectoryParams))
        methods = [(extend(name, params, since=V2025_11), self._serve) for name, params in rows]
        self.server.enable_extension(ID, settings, methods)

    async def _read(self, path: str) -> Any:
        uri = f"skill://{path}"
        self.read.append(uri)
        if self.contents is not None:
            return self.contents
        data = self.files[uri]
        try:
            return TextResourceContents(uri=uri, text=data.decode(), mime_type="text/markdown")
        except UnicodeDecodeError:
            import base64

            return BlobResourceContents(uri=uri, blob=base64.b64encode(data).decode(), mime_type="image/png")

    async def _serve(self, call: Any) -> dict[str, Any]:
        self.asked.append((call.method, getattr(call.params, "cursor", None)))
        if call.method == "skills/get":
            return {"skill": self.entry}
        if call.method == "skills/list":
            return {"skills": self.entries, **({} if self.next_cursor is None else {"nextCursor": self.next_cursor})}
        return {"resources": self.entries}

    @contextlib.asynccontextmanager
    async def met(self, **options: Any) -> AsyncIterator[SkillsClient]:
        async with connect(self.server, **options) as client:
            yield SkillsClient(client, label="liar")


@BOTH
async def test_an_honest_server_is_believed(tmp_path: Path, version: str) -> None:
    server = Server("s", version="1")
    server.enable_extension(Skills(skills_in(tmp_path)))
    async with connect(server, version=version, capabilities=SKILLS_CAPABILITY) as client:
        skills = SkillsClient(client, label="docs")
        found = {skill.uri: skill for skill in await skills.list()}
        assert set(found) == {REFUNDS, PDF}
        skill = found[PDF]
        assert (skill.name, skill.description, skill.origin) == ("pdf-processing", "What it is for.", "docs")
        assert skill.frontmatter["license"] == "MIT"
        assert skill.refusal is None
        text = await skills.read(skill)
        assert text.text.startswith("---\nname: pdf-processing")
        assert (text.uri, text.origin, text.mime_type) == (PDF, "docs", "text/markdown")
        forms = await skills.read(skill, "references/FORMS.md")
        assert forms.data == b"Fill all fields.\r\n"
        assert (await skills.read(skill, "./references/FORMS.md")).uri == FORMS
        assert (await skills.read(skill, "skill://pdf-processing/assets/pixel.png")).data == PNG
        assert (await skills.get(PDF)).fingerprint == skill.fingerprint
        inside = await skills.directory("skill://pdf-processing")
        assert [child.name for child in inside] == ["pdf-processing", "assets", "references"]
        with pytest.raises(CallError) as caught:
            await skills.get("skill://nobody/SKILL.md")
        assert caught.value.code == -32602


@BOTH
async def test_nothing_is_read_before_it_is_asked_for(version: str) -> None:
    """Whose rule: SEP-2640, lazy retrieval."""
    liar = Liar()
    async with liar.met(version=version) as skills:
        [skill] = await skills.list()
        await skills.get(PDF)
        assert liar.read == []
        await skills.read(skill)
        assert liar.read == [PDF]


async def test_the_client_tells_that_it_knows_of_skills() -> None:
    told: list[Any] = []
    server = Server("s", version="1")

    @server.middleware
    async def look(call: Any, call_next: Any) -> Any:
        told.append(call.peer.capabilities.get("extensions"))
        return await call_next(call)

    server.enable_extension(ID)
    async with connect(server, capabilities=SKILLS_CAPABILITY) as client:
        await client.request("server/discover")
    assert {ID: {}} in told


async def test_a_server_without_skills_is_not_asked() -> None:
    server = Server("s", version="1")
    asked: list[str] = []

    @server.middleware
    async def look(call: Any, call_next: Any) -> Any:
        asked.append(call.method)
        return await call_next(call)

    async with connect(server) as client:
        skills = SkillsClient(client)
        for attempt in (skills.list(), skills.get(PDF), skills.directory("skill://x")):
            with pytest.raises(Unsupported, match="does not offer skills"):
                await attempt
    assert not {"skills/list", "skills/get", "resources/directory/read"} & set(asked)


async def test_folders_are_looked_into_only_where_that_is_offered() -> None:
    """Whose rule: SEP-2640: clients MUST NOT call it against a server that has not declared it."""
    liar = Liar()
    async with liar.met() as skills:
        with pytest.raises(Unsupported, match=r"skill\.resources"):
            await skills.directory("skill://pdf-processing")
    assert liar.asked == []


async def tampered(liar: Liar, uri: str | None = None, **options: Any) -> SkillTampered:
    async with liar.met(**options) as skills:
        [skill] = await skills.list()
        with pytest.raises(SkillTampered) as caught:
            await skills.read(skill, uri)
    return caught.value


@BOTH
async def test_another_digest_is_refused(version: str) -> None:
    liar = Liar()
    liar.files[PDF] = liar.files[PDF].replace(b"well", b"evil")
    refused = await tampered(liar, version=version)
    assert (refused.reason, refused.uri) == ("digest", PDF)
    assert isinstance(refused, RemoteProtocolError)
    assert "evil" not in str(refused)


@BOTH
async def test_another_size_is_refused(version: str) -> None:
    liar = Liar()
    liar.files[FORMS] += b"!"
    assert (await tampered(liar, FORMS, version=version)).reason == "size"


@BOTH
@pytest.mark.parametrize(
    "front",
    [
        {"name": "pdf-processing", "description": "Something else."},
        {"name": "pdf-processing", "description": "What it is for.", "allowed-tools": "Bash"},
    ],
    ids=["another-description", "a-field-more"],
)
async def test_another_frontmatter_is_refused(version: str, front: dict[str, Any]) -> None:
    """Digest and size agree: only what was shown for approval does not."""
    liar = Liar()
    liar.entry["frontmatter"] = front
    refused = await tampered(liar, version=version)
    assert refused.reason == "frontmatter"


@pytest.mark.parametrize(
    "data",
    [
        b"no frontmatter",
        b"---\nname: *a\n---\n",
        b"---\nname: \xff\n---\n",
        manifest("pdf-processing", more="a: yes\n").encode(),
    ],
    ids=["none", "unreadable", "no-text", "a-field-more"],
)
async def test_a_frontmatter_that_cannot_be_compared_is_refused(data: bytes) -> None:
    liar = Liar()
    liar.files[PDF] = data
    liar.entry["resources"][0] = listed(PDF, data)
    assert (await tampered(liar)).reason == "frontmatter"


async def test_true_is_not_one_in_a_frontmatter() -> None:
    liar = Liar()
    liar.files[PDF] = manifest("pdf-processing", more="a: true\n").encode()
    liar.entry["resources"][0] = listed(PDF, liar.files[PDF])
    liar.entry["frontmatter"] = {**liar.entry["frontmatter"], "a": 1}
    assert (await tampered(liar)).reason == "frontmatter"


@pytest.mark.parametrize(
    "uri",
    [
        "references/OTHER.md",
        "skill://refunds/SKILL.md",
        "../x",
        "references/../references/FORMS.md",
        "file:///etc/passwd",
        "",
    ],
)
async def test_a_file_that_is_not_listed_is_not_even_asked_for(uri: str) -> None:
    """Whose rule: SEP-2640: an unlisted file is a verification failure."""
    liar = Liar()
    assert (await tampered(liar, uri)).reason == "unlisted"
    assert liar.read == []


@pytest.mark.parametrize(
    "contents",
    [
        [TextResourceContents(uri=FORMS, text="Fill all fields.")],
        [TextResourceContents(uri=PDF, text=manifest("pdf-processing"))] * 2,
    ],
    ids=["of-another-file", "twice"],
)
async def test_an_answer_that_is_not_one_file_is_refused(contents: list[Any]) -> None:
    liar = Liar()
    liar.contents = contents
    assert (await tampered(liar)).reason == "contents"


async def test_bytes_are_checked_as_bytes() -> None:
    liar = Liar()
    uri = "skill://pdf-processing/pixel.png"
    liar.files[uri] = PNG
    liar.entry["resources"].append(listed(uri, PNG))
    async with liar.met() as skills:
        [skill] = await skills.list()
        assert (await skills.read(skill, "pixel.png")).data == PNG
        liar.files[uri] = PNG[:-1] + b"\xfe"
        with pytest.raises(SkillTampered):
            await skills.read(skill, "pixel.png")


async def test_a_changed_skill_is_read_again_after_get() -> None:
    """What the client's cache kept of the old one is not in the way."""
    liar = Liar()
    async with liar.met() as skills:
        [skill] = await skills.list()
        await skills.read(skill, FORMS)
        liar.files[FORMS] = b"Fill some fields."
        liar.entry["resources"][1] = listed(FORMS, liar.files[FORMS])
        with pytest.raises(SkillTampered):
            await skills.read(skill, FORMS)
        fresh = await skills.get(PDF)
        assert fresh.fingerprint != skill.fingerprint
        assert (await skills.read(fresh, FORMS)).data == b"Fill some fields."


async def test_a_skill_is_read_from_the_server_that_listed_it() -> None:
    """Whose rule: SEP-2640: a skill of server A must not cause a read against server B."""
    one, other = Liar(), Liar()
    async with one.met() as mine, other.met() as yours:
        [skill] = await mine.list()
        with pytest.raises(LocalProtocolError, match="another server"):
            await yours.read(skill)
    assert other.read == []


def broken(**changes: Any) -> dict[str, Any]:
    entry = copy.deepcopy(Liar().entry)
    return {key: value for key, value in {**entry, **changes}.items() if value is not ...}


FILE = listed(PDF, b"")


@pytest.mark.parametrize(
    "entry",
    [
        "text",
        {},
        broken(resources=...),
        broken(resources="some"),
        broken(resources=[]),
        broken(resources=[{**FILE, "size": -1}]),
        broken(resources=[{**FILE, "size": True}]),
        broken(resources=[{"uri": PDF, "digest": FILE["digest"]}]),
        broken(resources=[{**FILE, "digest": "md5:0"}]),
        broken(resources=[{**FILE, "digest": FILE["digest"].upper()}]),
        broken(resources=[FILE, FILE]),
        broken(resources=[FILE, {**FILE, "uri": "skill://other/x.md"}]),
        broken(resources=[FILE, {**FILE, "uri": "skill://pdf-processing/../x.md"}]),
        broken(resources=[FILE, {**FILE, "uri": "skill://pdf-processing/%2e%2e/x.md"}]),
        broken(resources=[FILE, {**FILE, "uri": "skill://pdf-processing/a%2Fb"}]),
        broken(resources=[FILE, {**FILE, "uri": "skill://pdf-processing/a%5Cb"}]),
        broken(resources=[FILE, {**FILE, "uri": "skill://pdf-processing//b"}]),
        broken(resources=[FILE, {**FILE, "uri": "skill://pdf-processing/b?c"}]),
        broken(uri="skill://pdf-processing"),
        broken(uri="skill://other/SKILL.md"),
        broken(frontmatter={"name": "pdf-processing"}),
        broken(frontmatter={"name": "../x", "description": "d"}),
        broken(frontmatter=[]),
    ],
)
async def test_an_entry_that_breaks_the_rules_is_left_out(entry: Any, caplog: pytest.LogCaptureFixture) -> None:
    liar = Liar()
    liar.entries = [entry, liar.entry]
    good, liar.entry = liar.entry, entry
    async with liar.met() as skills:
        assert [skill.uri for skill in await skills.list()] == [good["uri"]]
        assert "a skill was left out of the list" in caplog.text
        with pytest.raises(SkillRejected):
            await skills.get(PDF)


async def test_an_entry_of_another_skill_is_no_answer_to_get() -> None:
    async with Liar().met() as skills:
        with pytest.raises(SkillRejected, match="answered with"):
            await skills.get("skill://other/SKILL.md")


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ("dynamic", "made on demand"),
        ([FILE, *(listed(f"skill://pdf-processing/{n}", b"") for n in range(512))], "513 files"),
        ([FILE, {**listed("skill://pdf-processing/big", b""), "size": 16 * 1024 * 1024 + 1}], "bytes"),
    ],
    ids=["dynamic", "too-many", "too-large"],
)
async def test_what_cannot_be_checked_or_is_too_large_is_listed_but_not_read(resources: Any, words: str) -> None:
    liar = Liar()
    liar.entry["resources"] = resources
    async with liar.met() as skills:
        [skill] = await skills.list()
        assert words in (skill.refusal or "")
        with pytest.raises(SkillRejected, match=words):
            await skills.read(skill)
    assert liar.read == []


@pytest.mark.parametrize(
    ("cursor", "error", "words"),
    [("same", RemoteProtocolError, "in circles"), (5, RemoteProtocolError, "no list")],
)
async def test_a_list_that_does_not_end_is_given_up(cursor: Any, error: type[Exception], words: str) -> None:
    liar = Liar()
    liar.next_cursor = cursor
    async with liar.met() as skills:
        with pytest.raises(error, match=words):
            await skills.list()


async def test_a_list_of_too_many_pages_is_given_up() -> None:
    liar = Liar()
    liar.next_cursor = "next"
    async with liar.met() as skills:
        with pytest.raises(TooManyPages):
            await skills.list(max_pages=1)


async def test_a_folder_that_holds_no_resources_is_an_error() -> None:
    liar = Liar(directoryRead=True)
    liar.entries = [{"name": "x"}]
    async with liar.met() as skills:
        with pytest.raises(RemoteProtocolError, match="malformed"):
            await skills.directory("skill://pdf-processing")


async def test_skills_can_be_read_from_many_tasks_at_once(tmp_path: Path) -> None:
    server = Server("s", version="1")
    server.enable_extension(Skills(skills_in(tmp_path)))
    async with connect(server) as client:
        skills = SkillsClient(client)
        skill = await skills.get(PDF)
        read = await asyncio.gather(*(skills.read(skill, FORMS) for _ in range(20)))
        assert {one.data for one in read} == {b"Fill all fields.\r\n"}


async def test_a_skill_says_what_it_is() -> None:
    async with Liar().met() as skills:
        assert repr(await skills.get(PDF)) == f"<Skill {PDF}>"
