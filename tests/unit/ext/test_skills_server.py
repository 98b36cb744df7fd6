"""Skills on a server: its methods, its resources, changes on disk, and who may see them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.support.idle_threads import idle_threads_go_at_once as idle_threads_go_at_once
from tests.support.until import PATIENCE

from trimaran import Server, connect
from trimaran.auth import Principal
from trimaran.errors import CallError, DeclarationError
from trimaran.ext import Skills
from trimaran.ext.skills import folder as folders
from trimaran.ext.skills import server as serving
from trimaran.ext.skills.entry import digest_of

from .skill_folders import FORMS, PDF, PNG, REFUNDS, manifest, skills_in, write


def served(root: Path, page_size: int = 1000, **options: Any) -> Server:
    server = Server("s", version="1", page_size=page_size)
    server.enable_extension(Skills(root, **options))
    return server


async def code_of(client: Any, method: str, **params: Any) -> int:
    with pytest.raises(CallError) as caught:
        await client.request(method, params)
    return caught.value.code


def test_the_extension_and_resources_are_declared(tmp_path: Path) -> None:
    root = skills_in(tmp_path)
    declared = served(root).capabilities()
    assert declared["extensions"] == {"io.modelcontextprotocol/skills": {"directoryRead": True}}
    assert "resources" in declared
    assert served(root, directory_read=False).capabilities()["extensions"] == {"io.modelcontextprotocol/skills": {}}


def test_skills_belong_to_one_server_and_a_server_has_one_folder(tmp_path: Path) -> None:
    skills = Skills(skills_in(tmp_path))
    server = Server("s", version="1")
    server.enable_extension(skills)
    with pytest.raises(DeclarationError, match="served already"):
        Server("t", version="1").enable_extension(skills)
    with pytest.raises(DeclarationError, match="has skills already"):
        server.enable_extension(Skills(tmp_path / "skills"))
    assert repr(skills) == f"<Skills in {tmp_path / 'skills'}: 2>"


def test_a_broken_skill_is_an_error_where_it_is_declared(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"tea/SKILL.md:1: "):
        Skills(write(tmp_path, {"tea/SKILL.md": "no"}))


def test_an_empty_folder_is_served_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = served(tmp_path)
    assert "there is no SKILL.md anywhere" in caplog.text
    assert "resources" in server.capabilities()


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_list_and_get_show_the_same_entries(tmp_path: Path, version: str) -> None:
    async with connect(served(skills_in(tmp_path), cache_ttl=60), version=version) as client:
        listed = await client.request("skills/list")
        assert [skill["uri"] for skill in listed["skills"]] == [REFUNDS, PDF]
        got = await client.request("skills/get", {"uri": PDF})
        assert got["skill"] == listed["skills"][1]
        assert set(got["skill"]) == {"uri", "frontmatter", "resources"}
        assert "nextCursor" not in listed
        hints = {key: got.get(key) for key in ("resultType", "ttlMs", "cacheScope")}
        if version == "2026-07-28":
            assert hints == {"resultType": "complete", "ttlMs": 60000, "cacheScope": "public"}
            assert listed["ttlMs"] == 60000
        else:
            assert not any(hints.values())
            assert not {"ttlMs", "cacheScope", "resultType"} & listed.keys()


async def test_revisions_without_extensions_have_no_such_methods(tmp_path: Path) -> None:
    async with connect(served(skills_in(tmp_path)), version="2025-06-18") as client:
        assert "extensions" not in client.server_capabilities
        for method in ("skills/list", "skills/get", "resources/directory/read"):
            assert await code_of(client, method, uri=PDF) == -32601
        assert (await client.read_resource(PDF)).text.startswith("---\nname: pdf-processing")


@pytest.mark.parametrize(
    "uri",
    [
        "skill://nobody/SKILL.md",
        FORMS,
        "skill://pdf-processing",
        "",
        "skill://pdf-processing/../pdf-processing/SKILL.md",
    ],
)
async def test_get_of_what_is_no_skill_is_invalid_params(tmp_path: Path, uri: str) -> None:
    """Whose rule: SEP-2640, getting a skill."""
    async with connect(served(skills_in(tmp_path))) as client:
        assert await code_of(client, "skills/get", uri=uri) == -32602


async def test_lists_are_paged(tmp_path: Path) -> None:
    root = write(tmp_path, {f"s{n}/SKILL.md": manifest(f"s{n}") for n in range(5)})
    async with connect(served(root, page_size=2)) as client:
        seen: list[str] = []
        page = await client.request("skills/list")
        while True:
            seen += [skill["frontmatter"]["name"] for skill in page["skills"]]
            if "nextCursor" not in page:
                break
            assert len(page["skills"]) == 2
            page = await client.request("skills/list", {"cursor": page["nextCursor"]})
        assert seen == ["s0", "s1", "s2", "s3", "s4"]
        assert await code_of(client, "skills/list", cursor="nonsense") == -32602


async def test_a_page_goes_on_where_it_was_when_skills_come_and_go(tmp_path: Path) -> None:
    root = write(tmp_path, {f"s{n}/SKILL.md": manifest(f"s{n}") for n in range(4)})
    async with connect(served(root, page_size=2)) as client:
        first = await client.request("skills/list")
        (root / "s1" / "SKILL.md").unlink()
        write(root, {"s0a/SKILL.md": manifest("s0a")})
        rest = await client.request("skills/list", {"cursor": first["nextCursor"]})
        assert [skill["frontmatter"]["name"] for skill in rest["skills"]] == ["s2", "s3"]


async def test_a_page_holds_no_more_files_than_a_message_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_PAGE_FILES", 3)
    files = {f"s{n}/{name}": manifest(f"s{n}") for n in range(3) for name in ("SKILL.md", "b.md")}
    files |= {f"s1/x{n}": "" for n in range(6)}
    async with connect(served(write(tmp_path, dict(files)))) as client:
        sizes: list[int] = []
        params: dict[str, Any] = {}
        while True:
            page = await client.request("skills/list", params)
            sizes.append(len(page["skills"]))
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
        assert sizes == [1, 1, 1]


async def test_every_file_is_a_resource_to_read(tmp_path: Path) -> None:
    async with connect(served(skills_in(tmp_path))) as client:
        forms = await client.read_resource(FORMS)
        assert (forms.text, forms.contents[0].mime_type) == ("Fill all fields.\r\n", "text/markdown")
        picture = await client.read_resource("skill://pdf-processing/assets/pixel.png")
        assert (picture.blob, picture.contents[0].mime_type) == (PNG, "image/png")
        assert "blob" in picture.raw["contents"][0]


async def test_only_manifests_are_listed_with_name_and_description(tmp_path: Path) -> None:
    async with connect(served(skills_in(tmp_path))) as client:
        listed = {resource.uri: resource for resource in await client.list_resources()}
        assert set(listed) == {REFUNDS, PDF}
        about = listed[PDF]
        assert (about.name, about.description, about.mime_type) == (
            "pdf-processing",
            "What it is for.",
            "text/markdown",
        )
        assert about.size == len((tmp_path / "skills/pdf-processing/SKILL.md").read_bytes())


@pytest.mark.parametrize(
    "uri",
    [
        "skill://pdf-processing/../../README.md",
        "skill://pdf-processing/..%2f..%2fREADME.md",
        "skill://pdf-processing/%2e%2e/%2e%2e/README.md",
        "skill://README.md",
        "skill:///etc/passwd",
        "skill://pdf-processing//etc/passwd",
        "skill://pdf-processing/references",
        "skill://pdf-processing/references/./FORMS.md",
        "skill://pdf-processing/references/FORMS.md?x",
        "skill://pdf-processing/references/FORMS.md\0",
    ],
)
async def test_no_path_leads_to_what_is_not_served(tmp_path: Path, uri: str) -> None:
    """Whose rule: protocol.md 6.9."""
    async with connect(served(skills_in(tmp_path))) as client:
        with pytest.raises(CallError) as caught:
            await client.read_resource(uri)
        assert caught.value.code == -32602
        assert "Not of any skill" not in str(caught.value)


async def test_folders_can_be_looked_into(tmp_path: Path) -> None:
    async with connect(served(skills_in(tmp_path), page_size=2)) as client:
        first = await client.request("resources/directory/read", {"uri": "skill://pdf-processing"})
        rest = await client.request(
            "resources/directory/read", {"uri": "skill://pdf-processing", "cursor": first["nextCursor"]}
        )
        found = [(child["name"], child["mimeType"]) for child in [*first["resources"], *rest["resources"]]]
        assert found == [
            ("pdf-processing", "text/markdown"),
            ("assets", "inode/directory"),
            ("references", "inode/directory"),
        ]
        assert "nextCursor" not in rest
        for uri in (PDF, "skill://nobody", "skill://pdf-processing/", "skill://"):
            assert await code_of(client, "resources/directory/read", uri=uri) == -32602
        unknown = await code_of(client, "resources/directory/read", uri="skill://pdf-processing", cursor="skill://x")
        assert unknown == -32602


async def test_folders_are_closed_unless_offered(tmp_path: Path) -> None:
    async with connect(served(skills_in(tmp_path), directory_read=False)) as client:
        assert await code_of(client, "resources/directory/read", uri="skill://pdf-processing") == -32601


async def test_a_change_on_disk_shows_in_everything(tmp_path: Path) -> None:
    root = skills_in(tmp_path)
    async with connect(served(root)) as client:
        before = await client.request("skills/get", {"uri": PDF})
        write(
            root, {"pdf-processing/SKILL.md": manifest("pdf-processing", "Another."), "tea/SKILL.md": manifest("tea")}
        )
        (root / "acme" / "billing" / "refunds" / "SKILL.md").unlink()
        after = await client.request("skills/get", {"uri": PDF})
        assert after["skill"]["frontmatter"]["description"] == "Another."
        assert after["skill"]["resources"] != before["skill"]["resources"]
        listed = await client.request("skills/list")
        assert [skill["uri"] for skill in listed["skills"]] == [PDF, "skill://tea/SKILL.md"]
        resources = {resource.uri: resource.description for resource in await client.list_resources(fresh=True)}
        assert resources == {PDF: "Another.", "skill://tea/SKILL.md": "What it is for."}
        with pytest.raises(CallError):
            await client.read_resource(REFUNDS)


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_who_listens_hears_of_a_change(tmp_path: Path, version: str) -> None:
    root = skills_in(tmp_path)
    async with (
        connect(served(root), version=version) as client,
        client.listen(resources_list=True, resources=[FORMS]) as changes,
    ):
        write(root, {"pdf-processing/references/FORMS.md": "Changed."})
        await client.request("skills/list")
        heard: set[tuple[str, str | None]] = set()
        async with asyncio.timeout(PATIENCE):
            async for change in changes:
                heard.add((change.kind, change.uri))
                if len(heard) == 2:
                    break
        assert heard == {("resources", None), ("resource", FORMS)}


async def test_what_is_read_is_always_what_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changed behind the file system's clock is noticed by its digest, and the listing follows."""
    monkeypatch.setattr(folders, "_stamp", lambda found: (0, 0, found.st_size, 0))
    root = skills_in(tmp_path)
    async with connect(served(root)) as client:
        path = root / "pdf-processing" / "references" / "FORMS.md"
        path.write_bytes(path.read_bytes().upper())
        text = (await client.read_resource(FORMS)).text
        assert text == "FILL ALL FIELDS.\r\n"
        listed = (await client.request("skills/get", {"uri": PDF}))["skill"]["resources"]
        assert digest_of(text.encode()) in {file["digest"] for file in listed}


async def test_a_file_swapped_for_a_link_outside_is_not_served(tmp_path: Path) -> None:
    root = skills_in(tmp_path)
    (tmp_path / "secret").write_text("the secret")
    async with connect(served(root)) as client:
        path = root / "pdf-processing" / "references" / "FORMS.md"
        path.unlink()
        path.symlink_to(tmp_path / "secret")
        with pytest.raises(CallError) as caught:
            await client.read_resource(FORMS)
        assert caught.value.code == -32602
        listed = await client.request("skills/list")
        assert [skill["uri"] for skill in listed["skills"]] == [REFUNDS]


async def test_a_skill_that_breaks_is_left_out_until_it_is_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = skills_in(tmp_path)
    async with connect(served(root)) as client:
        write(root, {"pdf-processing/SKILL.md": "---\nname: [\n---\n"})
        with caplog.at_level(logging.WARNING, "trimaran.server"):
            for _ in range(2):
                await client.request("skills/list")
            listed = await client.request("skills/list")
        assert [skill["uri"] for skill in listed["skills"]] == [REFUNDS]
        assert caplog.text.count("SKILL.md:2: ") == 1
        assert await code_of(client, "skills/get", uri=PDF) == -32602
        write(root, {"pdf-processing/SKILL.md": manifest("pdf-processing")})
        assert (await client.request("skills/get", {"uri": PDF}))["skill"]["uri"] == PDF


async def test_a_folder_that_is_gone_changes_nothing_but_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = skills_in(tmp_path)
    async with connect(served(root)) as client:
        root.rename(tmp_path / "away")
        for _ in range(2):
            assert len((await client.request("skills/list"))["skills"]) == 2
        assert caplog.text.count("the skills stay as they were") == 1
        assert await code_of(client, "resources/read", uri=FORMS) == -32603
        (tmp_path / "away").rename(root)
        assert (await client.read_resource(FORMS)).text == "Fill all fields.\r\n"


def test_refresh_says_whether_something_changed(tmp_path: Path) -> None:
    root = skills_in(tmp_path)
    skills = Skills(root)
    Server("s", version="1").enable_extension(skills)
    assert skills.refresh() is False
    write(root, {"tea/SKILL.md": manifest("tea")})
    assert skills.refresh() is True
    assert skills.refresh() is False


async def test_scopes_guard_the_list_the_entry_and_the_files(tmp_path: Path) -> None:
    server = served(skills_in(tmp_path), scopes=["skills:read"])
    async with connect(server, auth=Principal(subject="eve")) as client:
        for method, params in (
            ("skills/list", {}),
            ("skills/get", {"uri": PDF}),
            ("resources/read", {"uri": PDF}),
            ("resources/read", {"uri": FORMS}),
            ("resources/directory/read", {"uri": "skill://pdf-processing"}),
        ):
            assert await code_of(client, method, **params) == -32600, method
    async with connect(server, auth=Principal(subject="ann", scopes=frozenset({"skills:read"}))) as client:
        assert (await client.request("skills/list"))["cacheScope"] == "private"
        assert (await client.read_resource(FORMS)).text == "Fill all fields.\r\n"


async def test_many_callers_at_once_see_one_change(tmp_path: Path) -> None:
    root = skills_in(tmp_path)
    async with connect(served(root)) as client:
        write(root, {"tea/SKILL.md": manifest("tea")})
        pages = await asyncio.gather(*(client.request("skills/list") for _ in range(20)))
        assert {len(page["skills"]) for page in pages} == {3}
