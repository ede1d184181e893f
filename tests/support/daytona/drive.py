"""Drives a Daytona with its own SDK: python drive.py API_URL KEY IMAGE. Ends with an error where anything is not as it says."""

import asyncio
import pathlib
import sys
import tempfile

from daytona import (
    CreateSandboxFromImageParams,
    CreateSandboxFromSnapshotParams,
    CreateSnapshotParams,
    Daytona,
    DaytonaConfig,
    DaytonaError,
    FileDownloadRequest,
    FileUpload,
    Image,
    ListSandboxesQuery,
    Resources,
    SessionExecuteRequest,
)
from daytona._sync import object_storage


def main(api_url: str, key: str, image: str) -> None:
    daytona = Daytona(DaytonaConfig(api_key=key, api_url=api_url, target="us"))
    daytona.snapshot.create(CreateSnapshotParams(name="driven", image=image, resources=Resources(cpu=2, memory=1, disk=3)))
    wanted = CreateSandboxFromSnapshotParams(
        snapshot="driven",
        name="driven-1",
        env_vars={"GIVEN": "to it"},
        labels={"driven": "yes"},
        auto_stop_interval=15,
        domain_allow_list="github.com,*.example.org",
    )
    sandbox = daytona.create(wanted, timeout=60)
    assert sandbox.state == "started", sandbox.state
    assert sandbox.cpu == 2, sandbox.cpu
    commands(sandbox)
    sessions(sandbox)
    files(sandbox)
    life(daytona, sandbox)
    build(daytona, image)
    build_with_files(daytona, image)
    daytona.delete(sandbox)
    try:
        daytona.get("driven-1")
    except DaytonaError as error:
        assert "not found" in str(error), error
    else:
        raise AssertionError("it is still there")
    print("driven")


def commands(sandbox) -> None:
    response = sandbox.process.exec("echo $GIVEN $MORE; pwd", cwd="/tmp", env={"MORE": "and more"}, timeout=10)
    assert (response.exit_code, response.result) == (0, "to it and more\n/tmp\n"), response
    failed = sandbox.process.exec("echo wrong >&2; exit 3")
    assert (failed.exit_code, failed.result) == (3, "wrong\n"), failed
    try:
        sandbox.process.exec("sleep 20", timeout=1)
    except DaytonaError as error:
        assert "timeout" in str(error).lower(), error
    else:
        raise AssertionError("it was not ended in time")


def sessions(sandbox) -> None:
    process = sandbox.process
    process.create_session("s1")
    done = process.execute_session_command("s1", SessionExecuteRequest(command="echo out; echo err >&2; exit 4"))
    assert (done.exit_code, done.stdout, done.stderr) == (4, "out\n", "err\n"), done
    line = "for n in 1 2 3; do echo out $n; echo err $n >&2; sleep 0.1; done"
    started = process.execute_session_command("s1", SessionExecuteRequest(command=line, run_async=True))
    out, err = [], []
    asyncio.run(process.get_session_command_logs_async("s1", started.cmd_id, out.append, err.append))
    assert "".join(out) == "out 1\nout 2\nout 3\n", out
    assert "".join(err) == "err 1\nerr 2\nerr 3\n", err
    assert process.get_session_command("s1", started.cmd_id).exit_code == 0
    assert process.get_session_command_logs("s1", started.cmd_id).stdout == "out 1\nout 2\nout 3\n"
    assert len(process.get_session("s1").commands) == 2
    assert [one.session_id for one in process.list_sessions()] == ["s1"]
    process.delete_session("s1")
    assert process.list_sessions() == []


def files(sandbox) -> None:
    fs = sandbox.fs
    fs.create_folder("work", "755")
    content = bytes(range(256)) * 40
    fs.upload_file(content, "work/bytes")
    fs.upload_files([FileUpload(source=b"one", destination="work/1"), FileUpload(source=b"two", destination="work/2")])
    assert sorted(one.name for one in fs.list_files("work")) == ["1", "2", "bytes"]
    assert fs.get_file_info("work/bytes").size == len(content)
    assert fs.download_file("work/bytes") == content
    both = fs.download_files([FileDownloadRequest(source="work/1"), FileDownloadRequest(source="work/2")])
    assert [one.result for one in both] == [b"one", b"two"], both
    fs.delete_file("work/1")
    assert sorted(one.name for one in fs.list_files("work")) == ["2", "bytes"]


def life(daytona, sandbox) -> None:
    listed = list(daytona.list(ListSandboxesQuery(labels={"driven": "yes"}, limit=10)))
    assert [one.name for one in listed] == ["driven-1"], listed
    sandbox.set_labels({"driven": "yes", "more": "labels"})
    sandbox.set_autostop_interval(30)
    sandbox.refresh_activity()
    assert sandbox.get_preview_link(3000).url.startswith("https://3000-")
    assert sandbox.get_user_home_dir() == sandbox.process.exec("printf %s $HOME").result
    sandbox.stop(timeout=30)
    assert sandbox.state == "stopped", sandbox.state
    sandbox.start(timeout=30)
    again = daytona.get("driven-1")
    assert again.auto_stop_interval == 30, again.auto_stop_interval
    assert again.fs.download_file("work/2") == b"two"


def build(daytona, image: str) -> None:
    wanted = CreateSandboxFromImageParams(image=image, name="driven-2", resources=Resources(cpu=1, memory=1, disk=3))
    sandbox = daytona.create(wanted, timeout=120)
    assert sandbox.process.exec("echo built").result == "built\n"
    daytona.delete(sandbox)


def build_with_files(daytona, image: str) -> None:
    # The SDK stores files over TLS only, which the fake does not have.
    store = object_storage.S3Store
    plain = {"allow_http": True}
    object_storage.S3Store = lambda **given: store(**{**given, "client_options": {**given["client_options"], **plain}})
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "greeting").write_text("hello\n")
        (folder / "more").mkdir()
        (folder / "more" / "large").write_bytes(bytes(range(256)) * 40_000)
        (folder / "Dockerfile").write_text(f"FROM {image}\nCOPY greeting /greeting\nCOPY more /more\n")
        made = Image.from_dockerfile(folder / "Dockerfile")
        daytona.snapshot.create(CreateSnapshotParams(name="driven-files", image=made))
    sandbox = daytona.create(CreateSandboxFromSnapshotParams(snapshot="driven-files", name="driven-3"), timeout=120)
    assert sandbox.process.exec("cat /greeting; wc -c < /more/large").result == "hello\n10240000\n"
    daytona.delete(sandbox)


main(*sys.argv[1:])
