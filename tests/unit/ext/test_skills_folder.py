"""What is found in a folder of skills, what is refused with file and line, and how changes are noticed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from trimaran.errors import DeclarationError
from trimaran.ext.skills import folder as folders
from trimaran.ext.skills.folder import Folder, Snapshot

from .skill_folders import FORMS, PDF, PNG, REFUNDS, manifest, skills_in, write


def look(root: Path) -> Snapshot:
    return Folder(root).look(strict=True)


def refusal(root: Path) -> str:
    with pytest.raises(DeclarationError) as caught:
        look(root)
    return str(caught.value)


def test_every_folder_with_a_manifest_is_a_skill_with_all_its_files(tmp_path: Path) -> None:
    """Whose rule: SEP-2640, resource mapping and skill entries."""
    found = look(skills_in(tmp_path))
    assert list(found.skills) == [REFUNDS, PDF]
    entry = found.skills[PDF]
    assert entry.frontmatter == {"name": "pdf-processing", "description": "What it is for.", "license": "MIT"}
    assert entry.resources != "dynamic"
    assert [file.uri for file in entry.resources] == [PDF, "skill://pdf-processing/assets/pixel.png", FORMS]
    picture = entry.resources[1]
    assert picture.digest == "sha256:" + hashlib.sha256(PNG).hexdigest()
    assert picture.size == len(PNG)
    assert len(found.files) == 4


def test_files_say_what_they_are(tmp_path: Path) -> None:
    root = skills_in(tmp_path)
    write(root / "pdf-processing", {"run.py": "print()\n", "data.bin": b"\0", "notes": "text", "odd.xyz": b"\xff"})
    found = look(root)
    kinds = {uri.rpartition("/")[2]: (file.mime_type, file.is_text) for uri, file in found.files.items()}
    assert kinds["run.py"] == ("text/x-python", True)
    assert kinds["pixel.png"] == ("image/png", False)
    assert kinds["data.bin"] == ("application/octet-stream", False)
    assert kinds["notes"] == ("text/plain", True)
    assert kinds["odd.xyz"] == ("application/octet-stream", False)
    assert kinds["FORMS.md"] == ("text/markdown", True)


def test_a_skill_inside_a_skill_is_both_its_own_and_the_others_files(tmp_path: Path) -> None:
    """Whose rule: SEP-2640, nested skills."""
    root = write(tmp_path, {"outer/SKILL.md": manifest("outer"), "outer/inner/SKILL.md": manifest("inner")})
    found = look(root)
    assert list(found.skills) == ["skill://outer/SKILL.md", "skill://outer/inner/SKILL.md"]
    files = [[file["uri"] for file in entry.to_json()["resources"]] for entry in found.skills.values()]
    assert files == [list(found.skills), ["skill://outer/inner/SKILL.md"]]


def test_folders_show_their_direct_children(tmp_path: Path) -> None:
    found = look(skills_in(tmp_path)).directories
    children = {uri: [(child.name, child.mime_type) for child in inside] for uri, inside in found.items()}
    assert children["skill://pdf-processing"] == [
        ("pdf-processing", "text/markdown"),
        ("assets", "inode/directory"),
        ("references", "inode/directory"),
    ]
    assert children["skill://acme"] == [("billing", "inode/directory")]
    assert children["skill://pdf-processing/assets"] == [("pixel.png", "image/png")]
    assert found["skill://pdf-processing"][0].description == "What it is for."
    assert "skill://" not in found


def test_names_are_percent_encoded_in_uris(tmp_path: Path) -> None:
    root = write(tmp_path, {"Équipe A/tea/SKILL.md": manifest("tea"), "Équipe A/tea/a b#%?.md": "x"})
    found = look(root)
    assert set(found.files) == {
        "skill://%C3%89quipe%20A/tea/SKILL.md",
        "skill://%C3%89quipe%20A/tea/a%20b%23%25%3F.md",
    }


def test_hidden_files_and_caches_belong_to_nobody(tmp_path: Path) -> None:
    """Whose rule: ours: .env and .git are not for sale."""
    root = write(
        tmp_path,
        {
            "tea/SKILL.md": manifest("tea"),
            "tea/.env": "SECRET=1",
            "tea/.git/config": "x",
            "tea/__pycache__/a.pyc": b"\0",
            ".hidden/SKILL.md": "broken, and nobody looks",
        },
    )
    assert list(look(root).files) == ["skill://tea/SKILL.md"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("# No frontmatter\n", 1, "between two lines of ---"),
        ("---\nname: tea\n---\n", 1, "the description is a text"),
        ("---\nname: tea\ndescription: ''\n---\n", 3, "the description is a text"),
        ("---\nname: tea\ndescription: 12\n---\n", 3, "the description is a text"),
        (f"---\nname: tea\ndescription: {'x' * 1025}\n---\n", 3, "1 to 1024"),
        ("---\ndescription: d\nname: coffee\n---\n", 3, "they must be the same"),
        ("---\nname: Tea\ndescription: d\n---\n", 2, "a-z, 0-9"),
        ("---\nname: tea\ndescription: d\nx: &a 1\n---\n", 4, "an anchor"),
        ("---\nname: tea\ndescription: d\nmetadata:\n  io.modelcontextprotocol/x: 1\n---\n", 4, "reserved"),
        (b"---\nname: tea\ndescription: \xff\n---\n", 3, "not UTF-8"),
    ],
)
def test_a_manifest_that_cannot_be_served_is_named_with_its_line(
    tmp_path: Path, text: str | bytes, line: int, words: str
) -> None:
    refused = refusal(write(tmp_path, {"tea/SKILL.md": text}))
    assert refused.startswith(f"{tmp_path / 'tea' / 'SKILL.md'}:{line}: ")
    assert words in refused


@pytest.mark.parametrize("name", ["-tea", "tea-", "te--a", "t" * 65, "tea_x"])
def test_names_follow_the_rule_of_agent_skills(tmp_path: Path, name: str) -> None:
    assert "a-z, 0-9" in refusal(write(tmp_path, {f"{name}/SKILL.md": manifest(name)}))


def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    """Whose rule: protocol.md 6.9."""
    outside = write(tmp_path, {"secret.txt": "s"}) / "secret.txt"
    root = write(tmp_path / "skills", {"tea/SKILL.md": manifest("tea")})
    (root / "tea" / "notes.txt").symlink_to(outside)
    assert "leads out of" in refusal(root)
    (root / "tea" / "notes.txt").unlink()
    (root / "tea" / "notes.txt").symlink_to(Path("..") / ".." / "secret.txt")
    assert "leads out of" in refusal(root)


def test_a_link_to_a_file_inside_is_followed(tmp_path: Path) -> None:
    root = write(tmp_path, {"tea/SKILL.md": manifest("tea"), "shared.md": "for all"})
    (root / "tea" / "shared.md").symlink_to(root / "shared.md")
    found = Folder(root)
    file = found.look(strict=True).files["skill://tea/shared.md"]
    assert found.read(file) == b"for all"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere", "a link to nothing"),
        (".", "not a file"),
        ("../.env", "a hidden file"),
        ("tea.md", "a link to nothing"),
    ],
)
def test_a_link_to_anything_else_is_refused(tmp_path: Path, target: str, words: str) -> None:
    root = write(tmp_path, {"tea/SKILL.md": manifest("tea"), ".env": "SECRET=1"})
    (root / "tea" / "tea.md").symlink_to(target)
    refused = refusal(root)
    assert refused.startswith(str(root / "tea" / "tea.md"))
    assert words in refused


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path, {"tea/SKILL.md": manifest("tea")})
    os.mkfifo(root / "tea" / "pipe")
    assert "neither a file nor a folder" in refusal(root)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path, {"tea/SKILL.md": manifest("tea")})
    try:
        Path(os.fsdecode(os.fsencode(root / "tea") + b"/\xff")).write_text("x")
    except OSError:
        pytest.skip("this file system has no such names")
    assert "not UTF-8" in refusal(root)


def test_a_skill_has_at_most_512_files(tmp_path: Path) -> None:
    """Whose rule: SEP-2640, limits."""
    root = write(tmp_path, {"tea/SKILL.md": manifest("tea"), **{f"tea/x/{n}": "" for n in range(511)}})
    assert len(look(root).files) == 512
    write(root, {"tea/x/one-more": ""})
    assert "has 513 files" in refusal(root)


def test_a_skill_holds_at_most_16_mib(tmp_path: Path) -> None:
    """Whose rule: SEP-2640, limits. The sizes are known before anything is read."""
    root = write(tmp_path, {"tea/SKILL.md": manifest("tea")})
    with open(root / "tea" / "big.bin", "wb") as file:
        file.truncate(16 * 1024 * 1024)
    assert "16 MiB" in refusal(root)


def test_a_folder_of_too_many_things_is_the_wrong_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_MOST_ENTRIES", 5)
    assert "more than 5 files" in refusal(write(tmp_path, {f"{n}": "" for n in range(6)}))


def test_folders_nested_without_end_are_refused(tmp_path: Path) -> None:
    deep = tmp_path / "tea" / "/".join("d" * 40)
    deep.mkdir(parents=True)
    assert "nested more than" in refusal(write(tmp_path, {"tea/SKILL.md": manifest("tea")}))


def test_the_folder_must_be_there_and_hold_skills_not_be_one(tmp_path: Path) -> None:
    assert "not a folder" in refusal(tmp_path / "nowhere")
    root = write(tmp_path, {"tea/SKILL.md": manifest("tea")})
    assert "is a skill itself" in refusal(root / "tea")


def test_nothing_touched_gives_the_same_snapshot(tmp_path: Path) -> None:
    folder = Folder(skills_in(tmp_path))
    assert folder.look() is folder.look()


def test_only_what_was_touched_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = skills_in(tmp_path)
    folder = Folder(root)
    before = folder.look()
    read: list[str] = []
    monkeypatch.setattr(folders, "_is_text", lambda data: bool(read.append(data)) or True)
    write(root, {"pdf-processing/references/FORMS.md": "Fill some."})
    after = folder.look()
    assert read == [b"Fill some."]
    assert after.changed_since(before) == {FORMS}
    assert after.skills[REFUNDS] == before.skills[REFUNDS]
    assert after.skills[PDF] != before.skills[PDF]


def test_a_file_that_changed_unseen_is_not_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same size, and a clock too coarse to tell: only its content does."""
    monkeypatch.setattr(folders, "_stamp", lambda found: (0, 0, found.st_size, 0))
    root = skills_in(tmp_path)
    folder = Folder(root)
    before = folder.look()
    path = root / "pdf-processing" / "references" / "FORMS.md"
    assert folder.read(before.files[FORMS]) == path.read_bytes()
    path.write_bytes(path.read_bytes().upper())
    assert folder.look() is before
    assert folder.read(before.files[FORMS]) is None
    assert folder.look(afresh=True).changed_since(before) == {FORMS}


@pytest.mark.parametrize("swap", ["link", "gone", "longer", "directory"])
def test_a_file_that_became_something_else_is_not_handed_out(tmp_path: Path, swap: str) -> None:
    root = skills_in(tmp_path)
    folder = Folder(root)
    file = folder.look().files[FORMS]
    outside = tmp_path / "same"
    outside.write_bytes(file.path.read_bytes())
    if swap == "longer":
        file.path.write_bytes(outside.read_bytes() + b"!")
    else:
        file.path.unlink()
    if swap == "link":
        file.path.symlink_to(outside)
    elif swap == "directory":
        file.path.mkdir()
    assert folder.read(file) is None


def test_a_skill_that_breaks_later_is_left_out_and_complained_about(tmp_path: Path) -> None:
    root = skills_in(tmp_path)
    folder = Folder(root)
    folder.look(strict=True)
    write(root, {"pdf-processing/SKILL.md": "broken"})
    after = folder.look()
    assert list(after.skills) == [REFUNDS]
    assert "pdf-processing" in after.complaints[0]
    assert not any("pdf" in uri for uri in [*after.files, *after.directories])
    assert folder.look() is after
