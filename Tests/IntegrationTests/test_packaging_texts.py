"""What the package has beside the program: units, settings, man pages, completions."""

import re
import shutil
import subprocess

import pytest

from processes import BINARY, REPOSITORY, clean_environment, mayfly
from test_documents import anchors

PACKAGING = REPOSITORY / "packaging"


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generated")
    subprocess.run([PACKAGING / "generate", BINARY, folder], check=True, timeout=60)
    return folder


def settings():
    """{variable: flag} of `mayfly serve`."""
    return {name: flag for flag, name in re.findall(r"^  (--[a-z-]+) \(([A-Z_]+)\)$", mayfly("serve", "--help").stdout, re.M)}


def test_the_settings_file_explains_every_setting(generated):
    text = (generated / "mayfly.env").read_text()
    assert re.findall(r"^#?([A-Z_]+)=", text, re.M) == list(settings())
    for name in settings():
        explanation = re.search(rf"((?:^# .+\n)+)#?{name}=", text, re.M)
        assert explanation and len(explanation[1]) > 20, name
    assert max(map(len, text.splitlines())) <= 160


def test_the_packaged_settings_are_accepted(generated, tmp_path):
    """Read as systemd reads them, they get as far as the missing keys."""
    packaged = dict(re.findall(r"^([A-Z_]+)=(.*)$", (generated / "mayfly.env").read_text(), re.M))
    assert packaged == {"MAYFLY_STATE": "/var/lib/mayfly", "MAYFLY_TRUSTED_PROXIES": "127.0.0.1"}
    ran = mayfly("serve", **packaged | {"MAYFLY_STATE": tmp_path / "nothing"})
    assert ran.returncode == 1 and "mayfly keys init" in ran.stderr


@pytest.mark.parametrize("page", ["mayfly.1", "mayfly.env.5"])
def test_man_pages_are_clean_and_complete(generated, page):
    shown = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-rHY=0", generated / page], capture_output=True, text=True, timeout=60,
        env=clean_environment(LC_ALL="C.UTF-8", GROFF_NO_SGR=1))
    assert shown.returncode == 0 and shown.stderr == "", shown.stderr
    text = re.sub(r".\x08", "", shown.stdout)
    words = settings() if page == "mayfly.env.5" else [
        *settings().values(), *re.findall(r"^  (\S+)", mayfly("--help").stdout, re.M), "--max-age", "--archive", "--stay", "--report"]
    missing = [word for word in words if word not in text]
    assert not missing


def broken_links(folder):
    """Links of the documents that lead nowhere: ["document: link"]."""
    broken = []
    for document in folder.rglob("*.md"):
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", document.read_text()):
            file = document.parent / target if target else document
            if "://" not in target and not (file.exists() and (not anchor or file.suffix != ".md" or anchor in anchors(file))):
                broken.append(f"{document.relative_to(folder)}: {target}#{anchor}")
    return broken


def test_links_of_the_packages_documents_lead_somewhere(tmp_path):
    """As debhelper installs them, with the examples beside them."""
    stage, installed = tmp_path / "stage", tmp_path / "doc"
    subprocess.run([PACKAGING / "documents", stage / "documents"], check=True, timeout=60)
    installed.mkdir()
    for name in (PACKAGING / "debian/mayfly.docs").read_text().split():
        source = stage / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, installed / source.name)
    for name in re.findall(r'"\$stage/examples/([\w.]+)"|packaging/\w+/([\w.]+) "\$stage/examples/"', (PACKAGING / "build-deb").read_text()):
        (installed / "examples").mkdir(exist_ok=True)
        (installed / "examples" / "".join(name)).touch()
    assert len(list(installed.rglob("*.md"))) > 40 and "nginx.conf" in {path.name for path in (installed / "examples").iterdir()}
    assert broken_links(installed) == []
    # Compressed files have other names.
    assert "dh_compress -X.md" in (PACKAGING / "debian/rules").read_text()
    # What the programs and other texts name.
    for text in ((PACKAGING / "debian/README.Debian").read_text(), *(path.read_text() for path in (REPOSITORY / "Sources/Programs/mayfly").rglob("*.swift"))):
        for named in re.findall(r"(?:/usr/share/doc/mayfly/|(?<![\w/]))((?:docs/|SECURITY)[\w-]*\.md)", text):
            assert (installed / named).exists(), named


def test_reports_go_somewhere_or_the_texts_say_that_they_do_not():
    control, security, readme = (
        (REPOSITORY / name).read_text() for name in ("packaging/debian/control", "SECURITY.md", "packaging/debian/README.Debian"))
    [maintainer] = re.findall(r"^Maintainer: .*<(.*)>$", control, re.M)
    if maintainer.endswith(".invalid"):
        assert "There is no private way to report yet" in security and "There is no address for reports yet" in readme
        assert "Report a vulnerability" not in security
    else:
        assert maintainer in security


def completed(generated, *words):
    """What bash offers for the last word."""
    script = (f". {generated}/mayfly.bash; COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}; _mayfly; "
              "printf '%s\\n' \"${COMPREPLY[@]}\"")
    return subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True, timeout=30).stdout.split()


def test_bash_completes_commands_subcommands_and_flags(generated):
    commands = dict.fromkeys(re.findall(r"^  (\S+)", mayfly("--help").stdout, re.M))
    assert completed(generated, "mayfly", "") == [*commands, "--help", "--version"]
    assert completed(generated, "mayfly", "keys", "r") == ["renew", "rotate"]
    assert set(completed(generated, "mayfly", "serve", "--")) == {*settings().values(), "--help"}
    assert completed(generated, "mayfly", "audit", "verify", "--max") == ["--max-age"]
    assert completed(generated, "mayfly", "serve", "x") == []


@pytest.mark.parametrize("shell, name", [("zsh", "_mayfly"), ("fish", "mayfly.fish")])
def test_other_shells_parse_their_completions(generated, shell, name):
    if not shutil.which(shell):
        pytest.skip(f"NOT TESTED: no {shell} here")
    subprocess.run([shell, "-n", generated / name], check=True, timeout=30)


def test_fish_and_zsh_know_the_same_words(generated):
    fish, zsh = (generated / "mayfly.fish").read_text(), (generated / "_mayfly").read_text()
    for flag in settings().values():
        assert f'"__fish_seen_subcommand_from serve" -l {flag[2:]}\n' in fish
        assert re.search(rf"^    serve\).* flags=\(.*{flag}[ )]", zsh, re.M)


@pytest.fixture
def units(tmp_path):
    """The units, with the program where it is here."""
    for kind in ("service", "socket"):
        text = (PACKAGING / f"debian/mayfly.{kind}").read_text().replace("/usr/bin/mayfly", str(BINARY))
        (tmp_path / f"mayfly.{kind}").write_text(re.sub(r"^Documentation=.*\n", "", text, flags=re.M))
    return tmp_path


def test_systemd_accepts_the_units(units):
    for kind in ("service", "socket"):
        verified = subprocess.run(["systemd-analyze", "verify", "--man=no", units / f"mayfly.{kind}"], capture_output=True, text=True, timeout=60)
        ours = [line for line in verified.stderr.splitlines() if "mayfly" in line]
        assert not ours, ours


def test_the_unit_is_hardened(units):
    """As docs/production.md says."""
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=13", units / "mayfly.service"],
        capture_output=True, text=True, timeout=60)
    assert rated.returncode == 0, rated.stdout[-500:]
    [level] = re.findall(r"exposure level for mayfly.service: ([0-9.]+)", rated.stdout)
    assert f"exposure level for mayfly.service: {level} OK" in (REPOSITORY / "docs/production.md").read_text()


@pytest.mark.parametrize("settings, is_told", [
    ({"MAYFLY_DATABASE": "postgresql://db.example/mayfly"}, True), ({"MAYFLY_DATABASE": "postgres://db.example/mayfly", "MAYFLY_WRAPPING_KEY": ""}, True),
    ({"MAYFLY_DATABASE": "postgresql://db.example/mayfly", "MAYFLY_WRAPPING_KEY": "/run/wrapping.key"}, False), ({"MAYFLY_STATE": "/var/lib/mayfly"}, False),
    (None, False)], ids=["memory", "empty setting", "wrapped", "SQLite", "not running"])
def test_an_upgrade_says_beforehand_what_its_restart_may_cost(tmp_path, settings, is_told):
    """As dpkg runs it, before a file is replaced. It never stops the upgrade."""
    node = subprocess.Popen(["sleep", "60"], env=settings) if settings is not None else None
    try:
        if node:
            (tmp_path / "systemctl").write_text(f"#!/bin/sh\necho {node.pid}\n")
        else:
            (tmp_path / "systemctl").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "systemctl").chmod(0o755)
        for words, may_tell in ((["upgrade", "0.0.9", "0.1.0"], True), (["install"], False), (["abort-upgrade", "0.1.0"], False)):
            ran = subprocess.run(
                ["sh", PACKAGING / "debian/mayfly.preinst", *words], capture_output=True, text=True, timeout=30,
                env=clean_environment(PATH=f"{tmp_path}:/usr/bin:/bin"))
            assert ran.returncode == 0 and ran.stdout == "", ran
            if is_told and may_tell:
                assert "everything sealed is forgotten" in ran.stderr and "db.example" not in ran.stderr, ran.stderr
            else:
                assert ran.stderr == "", ran.stderr
    finally:
        if node:
            node.kill()
            node.wait()


def test_the_units_socket_is_the_brokers_default():
    [address] = re.findall(r"^ListenStream=(.*)$", (PACKAGING / "debian/mayfly.socket").read_text(), re.M)
    assert f"ADDRESS:PORT or unix:PATH (107 bytes at most). Default: {address}." in mayfly("serve", "--help").stdout
