"""The parts of gpu_check.py that ask whether this build is correct on this GPU: the build itself, the tests, and
compute-sanitizer on the tests of kernels. Their speed does not count, so they run side by side."""

import os
import re
import shutil
import subprocess

from gpu_check_page import NO_TIME_LEFT, PROJECT, TIMED_OUT, found

GPU_TESTS = "*cuda*:*Cuda*"  # tests with a CUDA half have it in their names
# Each kernel beside its CPU twin: few tests, as a sanitizer makes them some hundred times slower.
SANITIZED_TESTS = "cuda/*Twins*:*CudaProducts*:*CudaTiles*"
# Tests and sanitizers run side by side, but all wait for the same driver. On an H200 the sanitizers did four to six
# tests per second in all, and the tests of test_core, which take 80 s alone, did not end within 120 s.
TEST_SECONDS = 180
SANITIZER_SECONDS = 200
SANITIZED_PROGRAMS = ("test_cuda", "test_core")
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
TEST_PROGRAMS = ("test_core", "test_cuda", "test_nn", "test_datasets", "test_parallel", "test_chapters")
SHARDS = {"test_core": 4}  # its tests are shared by as many processes; 1 for the other programs


def build(check):
    if check.binaries:
        check_libraries(check)
        return
    architecture = check.gpu_capability.replace(".", "") + "-real"
    command = ("scripts/setup.sh --for-benchmarks && scripts/build.sh cuda --target gpu_check "
               f"-DSTAGECOACH_BENCHMARKS=ON -DCMAKE_CUDA_ARCHITECTURES={architecture}")
    status = check.run("build", 300, "bash", "-c", command)
    check.note_status("build", status, f"preset cuda for compute capability {check.gpu_capability}")
    if status == 0:
        check.binaries = PROJECT / "build/cuda"
    else:  # nothing rather than the programs of an older build
        check.binaries = "/nonexistent"
        check.write("## Build")
        check.write_output("build", 30)


def check_libraries(check):
    """Of programs from another machine: that their shared libraries are here."""
    missing = set()
    for path in filter(None, map(check.program, ("ch01_single_device", *TEST_PROGRAMS))):
        said = subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        missing.update(re.findall(r"^\s*(\S+) => not found", said, re.MULTILINE))
        missing.update(re.findall(r"version .(GLIBC\S*). not found", said))
    if missing:
        check.note("build", f"FAILED: programs of {check.binaries} need libraries that this machine lacks: "
                            f"{' '.join(sorted(missing))}; the preset portable links them in")
    else:
        check.note("build", f"passed: programs of {check.binaries}")


def count_tests(check, label, name):
    """The number that gtest prints after a label such as PASSED, or 0; of all shards."""
    return sum(map(int, re.findall(rf"^\[ *{label} *\] ([0-9]+) test", check.output(name), re.MULTILINE)))


def rerun_first_failure(check, name, path):
    """Runs the first test that failed, or in which the program ended, once more: alone, to tell it from those that an
    earlier failure took along, and waiting for each kernel, so that the error names the kernel."""
    started = re.findall(r"^\[ RUN *\] (\S+)", check.output(name), re.MULTILINE)
    first = found(r"^\[ *FAILED *\] ([^ ,\n]+)", check.output(name), started[-1] if started else None)
    if first:
        setting = "CUDA_LAUNCH_BLOCKING=1"
        status = check.run(f"{name}-again", 30, "env", setting, path, f"--gtest_filter={first}")
        check.write(f"`{first}` alone, with `{setting}`: exit status {status}")
        check.write_output(f"{name}-again")


def start_tests(check):
    for name in filter(check.program, TEST_PROGRAMS):
        shards = SHARDS.get(name, 1)
        for shard in range(shards):
            check.start_command(f"{name}-{shard}", TEST_SECONDS, "env", f"GTEST_TOTAL_SHARDS={shards}",
                                f"GTEST_SHARD_INDEX={shard}", check.program(name), f"--gtest_filter={GPU_TESTS}")


def finish_shards(check, name):
    """Joins the outputs of a program's shards; returns the first exit status that is not 0."""
    logs = [f"{name}-{shard}" for shard in range(SHARDS.get(name, 1))]
    statuses = [check.finish(log) for log in logs]
    for ending in ("out", "err"):
        texts = [(check.logs / f"{log}.{ending}").read_text(errors="replace") for log in logs]
        (check.logs / f"{name}.{ending}").write_text("".join(texts))
    return next(filter(None, statuses), 0)


def finish_tests(check):
    for name in TEST_PROGRAMS:
        path = check.program(name)
        if not path:
            check.note(name, "not run: the program is missing")
            continue
        status = finish_shards(check, name)
        ran, passed, skipped = (count_tests(check, label, name) for label in ("=*", "PASSED", "SKIPPED"))
        if status == 0 and ran <= skipped:
            nccl = "skipped: its only GPU tests are those of NCCL, which is not built in or needs more GPUs"
            check.note(name, nccl if name == "test_parallel" else f"not run: {skipped} of {ran} GPU tests were skipped")
            continue
        check.note_status(name, status, f"{passed} passed, {ran - passed - skipped} failed, {skipped} skipped")
        if status != 0:
            check.write(f"## Tests: the output of {name}")
            check.write_output(name, 40)
            rerun_first_failure(check, name, path)


def find_sanitizer():
    return shutil.which("compute-sanitizer", path=os.environ["PATH"] + ":/usr/local/cuda/bin")


def start_sanitizers(check):
    """The kernel tests under the tools of compute-sanitizer."""
    if not find_sanitizer():
        return
    for tool in SANITIZERS:
        for name in filter(check.program, SANITIZED_PROGRAMS):
            command = [find_sanitizer(), "--tool", tool, "--error-exitcode", "99", check.program(name)]
            check.start_command(f"{tool}-{name}", SANITIZER_SECONDS, *command, f"--gtest_filter={check.sanitize}")


def finish_sanitizers(check):
    if not find_sanitizer():
        check.note("compute-sanitizer", "not run: compute-sanitizer not found")
        return
    for tool in SANITIZERS:
        statuses = {name: check.finish(f"{tool}-{name}") for name in filter(check.program, SANITIZED_PROGRAMS)}
        matched = any(tests_run(check, f"{tool}-{name}") > 0 for name in statuses)
        for name in SANITIZED_PROGRAMS:
            note_sanitizer(check, tool, name, statuses.get(name), matched)


def tests_run(check, log):
    return count_tests(check, "=*", log) - count_tests(check, "SKIPPED", log)


def note_sanitizer(check, tool, name, status, matched):
    """`matched`: whether the filter matches tests of any program."""
    part = f"compute-sanitizer, {tool}, {name}"
    log = f"{tool}-{name}"
    if not check.program(name):
        check.note(part, f"not run: {name} is missing")
        return
    if status == 0 and tests_run(check, log) <= 0:
        check.note(part, f"{'skipped' if matched else 'not run'}: no test matched {check.sanitize}")
        return
    output = check.output(log)
    summaries = re.findall(r"^=* *([A-Z]* SUMMARY: .*)", output, re.MULTILINE)
    reports = re.findall(r"^========= (?!COMPUTE-SANITIZER|.*SUMMARY)\S", output, re.MULTILINE)
    passed = len(re.findall(r"^\[ *OK *\]", output, re.MULTILINE))
    if status == TIMED_OUT and reports:
        status = 1
    words = (f"{tests_run(check, log)} tests; {summaries[-1]}" if summaries
             else f"{passed} tests passed, {len(reports)} reports")
    check.note_status(part, status, words)
    if status not in (0, TIMED_OUT, NO_TIME_LEFT):
        check.write(f"## {part}: its output")
        check.write_output(log, 40)
