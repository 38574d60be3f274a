"""The package, the image, and a bare Debian that they run on."""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile

import pytest

import ledger
from processes import REPOSITORY
from test_packaging_texts import broken_links
from world import World

PACKAGE = REPOSITORY / ".build/package"
# Building, and Debian's archive, take minutes. Root is needed for chroot.
pytestmark = [pytest.mark.package, pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: the package's tests need root, for chroot")]


def ran(*command, seconds=600, **more):
    done = subprocess.run([*map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, **more)
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def deb():
    """The package in .build/package, built if it is older than the last commit."""
    head = int(ran("git", "-C", REPOSITORY, "log", "-1", "--format=%ct"))
    if not any(package.stat().st_mtime > head for package in PACKAGE.glob("mayfly_*.deb")):
        ran(REPOSITORY / "packaging/build-deb", seconds=3600)
    [package] = PACKAGE.glob("mayfly_*.deb")
    return package


@pytest.fixture(scope="module")
def unpacked(deb, tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    ran("dpkg-deb", "-x", deb, folder)
    return folder


def test_lintian_finds_no_fault(deb):
    [changes] = PACKAGE.glob("mayfly_*.changes")
    ran("lintian", "--allow-root", "--fail-on", "error,warning", "--suppress-tags", "initial-upload-closes-no-bugs", changes)


def test_links_of_its_documents_lead_somewhere(unpacked):
    assert broken_links(unpacked / "usr/share/doc/mayfly") == []


def test_the_program_is_the_one_in_the_log(unpacked):
    """So whoever builds the package of a release can compare it with a broker's log."""
    program = unpacked / "usr/bin/mayfly"
    with World(apns=False, binary=program) as world:
        assert world.broker.stop() == 0
        [start] = [entry for entry in ledger.read(world.state).entries if entry["op"] == "broker.started"]
        assert start["binary"] == hashlib.sha256(program.read_bytes()).hexdigest()


def test_the_package_depends_on_debians_libraries_only(deb, unpacked):
    """Swift's runtime is in the program."""
    linked = set(re.findall(r"^\s*(\S+\.so\S*)", ran("ldd", unpacked / "usr/bin/mayfly"), re.M))
    assert {name.split(".so")[0] for name in linked} >= {"libsodium", "libssl", "libsqlite3", "libnghttp2", "libwslay"}
    assert not [name for name in linked if re.search("swift|dispatch|Blocks|llhttp", name)]
    depends = ran("dpkg-deb", "-f", deb, "Depends")
    for name in ("libsodium23", "libsqlite3-0", "libssl3", "libnghttp2-14", "libwslay1", "ca-certificates"):
        assert re.search(rf"\b{name}\b", depends), depends


def test_an_upgrade_restarts_the_broker_and_not_its_socket(deb, tmp_path):
    """And the operator's settings survive it."""
    ran("dpkg-deb", "-e", deb, tmp_path)
    install = (tmp_path / "postinst").read_text()
    assert "_dh_action=restart" in install and "deb-systemd-invoke $_dh_action 'mayfly.service'" in install
    assert "deb-systemd-invoke start 'mayfly.socket'" in install
    removal = re.sub(r'if \[ -z "\$\{DPKG_ROOT:-\}" \] && \[ "\$1" = remove \].*?\nfi\n', "", (tmp_path / "prerm").read_text(), flags=re.S)
    assert "stop" not in removal
    assert (tmp_path / "conffiles").read_text().split() == ["/etc/mayfly/mayfly.env"]


def test_a_bare_debian_installs_it_and_pushes(deb):
    assert "s  first push seen" in ran(REPOSITORY / "packaging/try-debian", "deb", seconds=900)


@pytest.fixture(scope="module")
def image(deb):
    ran(REPOSITORY / "packaging/build-image", seconds=1200)
    return PACKAGE / "mayfly-image.tar"


def blob(archive, descriptor):
    """The content of a descriptor, whose size and digest must be right."""
    algorithm, digest = descriptor["digest"].split(":")
    content = archive.extractfile(f"blobs/{algorithm}/{digest}").read()
    assert algorithm == "sha256" and hashlib.sha256(content).hexdigest() == digest and len(content) == descriptor["size"]
    return content


@pytest.fixture(scope="module")
def contents(image):
    """The image's configuration and the bytes of its only layer."""
    with tarfile.open(image) as archive:
        assert json.load(archive.extractfile("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
        [entry] = json.load(archive.extractfile("index.json"))["manifests"]
        manifest = json.loads(blob(archive, entry))
        assert manifest["schemaVersion"] == 2 and manifest["mediaType"] == entry["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
        config, [layer] = json.loads(blob(archive, manifest["config"])), manifest["layers"]
        content = gzip.decompress(blob(archive, layer))
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"]
        # Docker's own list names the same files.
        [docker] = json.load(archive.extractfile("manifest.json"))
        places = [docker["Config"], *docker["Layers"]]
        assert places == ["blobs/" + one["digest"].replace(":", "/") for one in (manifest["config"], layer)]
    return config, content


def test_the_image_is_small_and_unprivileged(contents, deb):
    config, content = contents
    assert config["os"] == "linux" and config["architecture"] == ran("dpkg-deb", "-f", deb, "Architecture").strip()
    assert config["config"]["User"] == "999:999" and config["config"]["Entrypoint"] == ["/usr/bin/mayfly"]
    with tarfile.open(fileobj=io.BytesIO(content)) as layer:
        files = {member.name.removeprefix("./"): member for member in layer}
    assert files["usr/bin/mayfly"].mode & 0o111
    assert files["var/lib/mayfly"].uid == 999 and files["var/lib/mayfly"].mode & 0o777 == 0o700
    assert not [name for name in files if re.fullmatch(r"(usr/)?s?bin/(sh|bash|dash|apt|dpkg|perl\S*|openssl)", name)]
    assert not [name for name, member in files.items() if member.mode & 0o6000]
    assert len(content) < 60 << 20


def in_a_container(contents, tmp_path, command):
    """Runs a shell command in which `$mayfly` is the image's program as a container would run it: its user, its variables, a volume for the state, a
    network of its own, nothing else writable. The machine has the address 192.0.2.1 there."""
    config, content = contents
    root, volume = tmp_path / "root", tmp_path / "volume"
    with tarfile.open(fileobj=io.BytesIO(content)) as layer:
        layer.extractall(root, filter="fully_trusted")
    volume.mkdir(mode=0o700)
    os.chown(volume, 999, 999)
    variables = " ".join(config["config"]["Env"])
    script = f"""
        ip link set lo up
        ip address add 192.0.2.1/32 dev lo
        mount --bind {root} {root} && mount -o remount,ro,bind {root}
        mount --bind {volume} {root}/var/lib/mayfly
        mount -t proc proc {root}/proc
        mount --bind /dev {root}/dev
        mayfly='/usr/sbin/chroot --userspec={config["config"]["User"]} {root} {config["config"]["Entrypoint"][0]}'
        {command.replace("$mayfly", f"env -i {variables} $mayfly")}
    """
    assert shutil.which("unshare")
    return ran("unshare", "--mount", "--net", "--pid", "--fork", "sh", "-ec", script, seconds=120)


def test_the_images_program_plays_the_demo_on_a_read_only_root(contents, tmp_path):
    told = in_a_container(contents, tmp_path, "$mayfly demo")
    assert told.rstrip().endswith("The ledger's verdict: good."), told


def test_the_demo_page_reaches_the_browser_through_a_published_port(contents, tmp_path):
    """Its requests come from another address than loopback, and name loopback."""
    assert "Two phones" in in_a_container(contents, tmp_path, """
        $mayfly demo --stay --listen 0.0.0.0:8787 --allow-cleartext 0.0.0.0 >&2 &
        for try in $(seq 300); do
          curl -sf --interface 192.0.2.1 -H 'Host: 127.0.0.1:8787' http://192.0.2.1:8787/demo/ && exit
          sleep 0.1
        done
        exit 1
    """)


def test_images_of_one_package_are_equal(image):
    before = image.read_bytes()
    ran(REPOSITORY / "packaging/build-image", seconds=1200)
    assert image.read_bytes() == before


def test_builds_in_two_folders_give_the_same_package():
    ran(REPOSITORY / "packaging/check-reproducible", seconds=7200)
