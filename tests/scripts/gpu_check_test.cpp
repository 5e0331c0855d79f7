// Tests scripts/gpu_check.py without a GPU: stand-ins for nvidia-smi, compute-sanitizer and our own programs.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <regex>
#include <string>

#include "tests/support/files.h"
#include "tests/support/program_path.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

class GpuCheck : public testing::Test {
 protected:
  /// A program made of shell lines.
  void stand_in(const std::string& path, const std::string& lines) {
    const fs::path file = folder_ / path;
    fs::create_directories(file.parent_path());
    test::write_bytes(file, "#!/bin/bash\n" + lines + "\n");
    fs::permissions(file, fs::perms::owner_all);
  }

  void give_gpu() { stand_in("path/nvidia-smi", "echo 'NVIDIA Test, 580.1, 9.0'"); }

  /// Programs that all work, as gtest and chapter 1 speak.
  void give_programs() {
    for (const char* name : {"test_core", "test_cuda", "test_nn", "test_datasets", "test_parallel", "test_chapters"}) {
      stand_in(std::string("bin/") + name, tests(7, 7, 0));
    }
    stand_in("path/compute-sanitizer", tests(3, 3, 0) + "\necho '========= ERROR SUMMARY: 0 errors'");
    stand_in("bin/cuda_kernels_benchmark", "echo '| relu | 2.0 | 1.0 | 50% | memory | | 1 | | |'");
    stand_in("bin/convolution_steps_benchmark", "echo '| plain | 5.4 | 100 | 1.0 |'");
    stand_in("bin/ch01_single_device",
             "echo 'CPU kernels: high, of low, high; STAGECOACH_LEVEL chooses'\n"
             "for e in 1 2; do\n"
             "echo \"Epoch: $e, Loss: 2.17, acc: 0.3, time cost: 1.00s, test acc: 0.37, 50000 img/s, idle 0.1%\"\n"
             "done");
    for (const char* name : {"ch03_gpipe", "ch05_interleaved"}) {
      stand_in(std::string("bin/") + name, "for e in 1 2; do echo \"Epoch: $e, time cost: 1s, 40000 img/s\"; done");
    }
    fs::create_directories(folder_ / "data");
    for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"}) {
      test::write_bytes(folder_ / "data" / name, "");
    }
  }

  /// The end of what a gtest program prints with --gtest_brief=1.
  static std::string tests(int ran, int passed, int skipped) {
    std::string text = "echo '[==========] " + std::to_string(ran) + " tests from 1 test suite ran. (9 ms total)'\n" +
                       "echo '[  PASSED  ] " + std::to_string(passed) + " tests.'";
    return skipped == 0 ? text : text + "\necho '[  SKIPPED ] " + std::to_string(skipped) + " tests.'";
  }

  /// Runs the script; what it says is in output_, and its page in page_.
  int run(const std::string& flags = "") {
    const std::string command =
        "PATH='" + folder_.file("path") + "':$PATH python3 '" STAGECOACH_SCRIPTS "/gpu_check.py' --out '" +
        folder_.file("page.md") + "' --binaries '" + folder_.file("") + "' --data '" + folder_.file("data") +
        "' --python false " + flags + " >'" + folder_.file("log") + "' 2>&1";
    const int status = std::system(command.c_str());
    output_ = test::read_bytes(folder_ / "log");
    page_ = test::read_bytes(folder_ / "page.md");
    return WEXITSTATUS(status);
  }

  bool page_has(const std::string& part) const { return page_.find(part) != std::string::npos; }

  test::TemporaryFolder folder_;
  std::string output_;
  std::string page_;
};

TEST_F(GpuCheck, SaysInOneLineThatThereIsNoGpu) {
  stand_in("path/nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9");
  EXPECT_EQ(run(), 2);
  EXPECT_EQ(output_, "gpu_check: nvidia-smi lists no GPU; nothing was checked\n");
  EXPECT_FALSE(fs::exists(folder_ / "page.md"));
}

TEST_F(GpuCheck, ShowsItsPlanWithoutAGpu) {
  EXPECT_EQ(run("--plan --minutes 2"), 0);
  EXPECT_NE(output_.find(" 60         1  tests\n"), std::string::npos) << output_;
  EXPECT_NE(output_.find("compute-sanitizer (left out)\n"), std::string::npos) << output_;
  EXPECT_FALSE(fs::exists(folder_ / "page.md"));
}

TEST_F(GpuCheck, LeavesOutWhatDoesNotFit) {
  give_gpu();
  give_programs();
  EXPECT_EQ(run("--minutes 2"), 3) << output_;
  EXPECT_TRUE(page_has("| test_core | passed: 28 passed")) << page_;
  EXPECT_TRUE(page_has("| compute-sanitizer | not run: left out, as it would not fit into 2 minutes |")) << page_;
  EXPECT_TRUE(page_has("| kernel table | passed: 1 rows |")) << page_;  // as the tests took less than was planned
}

TEST_F(GpuCheck, SanitizesTheTestsThatWereAskedFor) {
  give_gpu();
  give_programs();
  stand_in("path/compute-sanitizer",
           "echo \"$@\"\nif [[ $* == *test_cuda* ]]; then " + tests(0, 0, 0) + "; else " + tests(3, 3, 0) + "; fi");
  EXPECT_EQ(run("--sanitize 'Fused*'"), 3) << output_;
  EXPECT_TRUE(page_has("| compute-sanitizer, memcheck, test_core | passed: ")) << page_;
  EXPECT_TRUE(page_has("| compute-sanitizer, memcheck, test_cuda | skipped: no test matched Fused* |")) << page_;
  EXPECT_NE(test::read_bytes(folder_ / "page.logs" / "memcheck-test_core.out").find("--gtest_filter=Fused*\n"),
            std::string::npos);
  stand_in("path/compute-sanitizer", tests(0, 0, 0));
  EXPECT_EQ(run("--sanitize 'Fuesd*'"), 3) << output_;
  EXPECT_TRUE(page_has("| compute-sanitizer, memcheck, test_core | not run: no test matched Fuesd* |")) << page_;
}

TEST_F(GpuCheck, ExplainsItselfToWrongFlags) {
  EXPECT_EQ(run("--wrong flag"), 2);
  EXPECT_NE(output_.find("[--binaries DIR]"), std::string::npos) << output_;
}

TEST_F(GpuCheck, TellsWhatRan) {
  give_gpu();
  give_programs();
  EXPECT_EQ(run(), 3) << output_;  // this python has no torch
  EXPECT_TRUE(page_has("NVIDIA Test, compute capability 9.0, driver 580.1")) << page_;
  EXPECT_TRUE(page_has("| test_core | passed: 28 passed, 0 failed, 0 skipped |")) << page_;
  EXPECT_TRUE(page_has("| compute-sanitizer, racecheck, test_cuda | passed: 3 tests; ERROR SUMMARY: 0 errors |"))
      << page_;
  const std::regex beside_the_cpu(R"(\| 1 \| [0-9.]+ \| 2\.17 \| [0-9.]+ \| 0\.37 \| )");  // the CPU's from its page
  EXPECT_TRUE(std::regex_search(page_, beside_the_cpu)) << page_;
  EXPECT_TRUE(page_has("| 50000 |")) << page_;
  EXPECT_TRUE(page_has("| kernel table | passed: 1 rows |")) << page_;
  EXPECT_TRUE(page_has("| convolution, step by step | passed: 1 rows |")) << page_;
  EXPECT_TRUE(page_has("| beside PyTorch: convnet, batch 64 | not run: false lacks numpy, or torch with CUDA |"))
      << page_;
  EXPECT_TRUE(page_has("| levels of CPU kernels | passed: chapter 1 with each in turn |")) << page_;
  EXPECT_TRUE(page_has("| pipelines in graphs | passed: 10 rows |")) << page_;
  EXPECT_TRUE(page_has("| 1024 | gpipe | 40000 | 0.80 |")) << page_;
  EXPECT_TRUE(page_has("| low | 50000 | 1.00 | 50000 | 50000 |")) << page_;
}

TEST_F(GpuCheck, ComparesNoLevelsWhereThereIsOne) {
  give_gpu();
  give_programs();
  fs::remove(folder_ / "bin" / "ch03_gpipe");  // this chapter 1 has no epochs to compare its with
  stand_in("bin/ch01_single_device",
           "[[ $STAGECOACH_LEVEL != low ]] || exit 2\n"
           "echo 'CPU kernels: high, of low, high; STAGECOACH_LEVEL chooses'");
  EXPECT_EQ(run(), 3) << output_;
  EXPECT_TRUE(page_has("| levels of CPU kernels | skipped: ")) << page_;
}

TEST_F(GpuCheck, GoesOnAfterAPartThatFails) {
  give_gpu();
  give_programs();
  stand_in("bin/test_nn",
           "echo \"wrong by 0.25 $1\"\necho '[  FAILED  ] Convnet.Trains/cuda, where GetParam() = 8 (3 ms)'\n" +
               tests(5, 4, 0) + "\n[[ -v CUDA_LAUNCH_BLOCKING ]] && echo 'kernel relu<float>'\nexit 1");
  stand_in("bin/cuda_kernels_benchmark", "echo 'no memory' >&2; exit 1");
  EXPECT_EQ(run(), 1) << output_;
  EXPECT_TRUE(page_has("| test_nn | FAILED (exit 1): 4 passed, 1 failed, 0 skipped |")) << page_;
  EXPECT_TRUE(page_has("wrong by 0.25")) << page_;
  EXPECT_TRUE(page_has("`Convnet.Trains/cuda` alone, with `CUDA_LAUNCH_BLOCKING=1`: exit status 1\n")) << page_;
  EXPECT_TRUE(page_has("wrong by 0.25 --gtest_filter=Convnet.Trains/cuda")) << page_;
  EXPECT_TRUE(page_has("kernel relu<float>")) << page_;
  EXPECT_NE(test::read_bytes(folder_ / "page.logs" / "kernels.err").find("no memory"), std::string::npos);
  EXPECT_TRUE(page_has("| kernel table | FAILED (exit 1): 0 rows |")) << page_;
  EXPECT_TRUE(page_has("no memory")) << page_;
  EXPECT_TRUE(page_has("| test_chapters | passed")) << page_;
}

TEST_F(GpuCheck, RunsTheTestAgainInWhichAProgramEnded) {
  give_gpu();
  give_programs();
  stand_in("bin/test_core",
           "echo \"[ RUN      ] Good.One\"\necho \"[       OK ] Good.One (1 ms)\"\n"
           "echo \"[ RUN      ] Bad.One/cuda\"\necho \"with $1\" >&2\nkill -SEGV $$");
  EXPECT_EQ(run(), 1) << output_;
  EXPECT_TRUE(page_has("| test_core | FAILED (exit 139): ")) << page_;
  EXPECT_TRUE(page_has("with --gtest_filter=Bad.One/cuda")) << page_;
}

TEST_F(GpuCheck, SaysWhichLibrariesAreMissing) {
  give_gpu();
  give_programs();
  stand_in("path/ldd", "echo '	libfmt.so.9 => not found'");
  EXPECT_EQ(run(), 1) << output_;
  EXPECT_TRUE(page_has("need libraries that this machine lacks: libfmt.so.9")) << page_;
}

TEST_F(GpuCheck, MeasuresOnGeneratedImagesWhereThereAreNoOthers) {
  give_gpu();
  give_programs();
  fs::remove_all(folder_ / "data");
  stand_in("bin/make_generated_data",
           "mkdir \"$1\"; head -c 30730000 /dev/zero | tee \"$1/data_batch_1.bin\" "
           "\"$1/data_batch_2.bin\" > \"$1/test_batch.bin\"");
  EXPECT_EQ(run(), 3) << output_;
  EXPECT_TRUE(page_has("| CIFAR-10 | not found: measured on generated images; give --data |")) << page_;
  EXPECT_TRUE(page_has("| chapter 1, ten epochs of generated images | passed: 2 epochs |")) << page_;
}

// With a filter that finds nothing the sanitizers would have nothing to say.
TEST_F(GpuCheck, ItsFiltersFindTests) {
  const std::string test_core = test::program_path("test_core");
  const auto found = [&](const std::string& filter) {
    const std::string list = folder_.file("list");
    EXPECT_EQ(
        std::system(("'" + test_core + "' --gtest_list_tests \"--gtest_filter=" + filter + "\" > " + list).c_str()), 0);
    return test::read_bytes(list);
  };
  const auto filters_of = [](const std::string& name) {
    return "$(sed -n \"s/^" + name + " = \\\"\\([^\\\"]*\\)\\\".*/\\1/p\" " STAGECOACH_SCRIPTS "/gpu_check_tests.py)";
  };
  if (found("*Twins*").empty()) {
    GTEST_SKIP() << "this build has no kernels for GPUs";
  }
  for (const char* name : {"Channel", "Elementwise", "Matrix", "Pool", "Row", "Step"}) {
    const std::string twins = std::string("cuda/") + name + "Twins.";
    EXPECT_NE(found(filters_of("SANITIZED_TESTS")).find(twins), std::string::npos) << twins;
    EXPECT_NE(found(filters_of("GPU_TESTS")).find(twins), std::string::npos) << twins;
  }
}

TEST_F(GpuCheck, DoesNotTakeSkippedOrMissingTestsForPassedOnes) {
  give_gpu();
  give_programs();
  stand_in("bin/test_core", tests(2, 0, 2));
  fs::remove(folder_ / "bin" / "test_nn");
  fs::remove_all(folder_ / "data");
  EXPECT_EQ(run(), 3) << output_;
  EXPECT_TRUE(page_has("| test_core | not run: 8 of 8 GPU tests were skipped |")) << page_;
  EXPECT_TRUE(page_has("| test_nn | not run: the program is missing |")) << page_;
  EXPECT_TRUE(page_has("| chapter 1, ten epochs of CIFAR-10 | not run: no CIFAR-10 in ")) << page_;
}

}  // namespace
}  // namespace stagecoach
