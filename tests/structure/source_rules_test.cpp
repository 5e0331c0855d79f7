// The rules themselves: each is planted a breach in a small project, and must find it and nothing else.
#include "tests/structure/source_rules.h"

#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>

namespace stagecoach {
namespace {

using Lines = std::vector<std::string>;

/// A project in a folder of its own, gone after the test.
class SourceRules : public testing::Test {
 protected:
  SourceRules() {
    write("core/tensor.h", "#include <vector>\n#include \"core/shape.h\"\n");
    write("nn/module.cpp", "#include \"core/tensor.h\"\n#include \"nn/module.h\"\n");
    write("nn/CMakeLists.txt", "add_library(nn module.cpp)\n");
  }
  ~SourceRules() override { std::filesystem::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = root_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  const std::filesystem::path root_ = make_folder();

 private:
  static std::filesystem::path make_folder() {
    std::string name = testing::TempDir() + "stagecoach_source_rules_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error("cannot make " + name);
    }
    return name;
  }
};

TEST_F(SourceRules, PassOnASoundProject) {
  EXPECT_EQ(wrong_includes(root_), Lines{});
  EXPECT_EQ(unlisted_sources(root_), Lines{});
  EXPECT_EQ(foreign_random_numbers(root_), Lines{});
  EXPECT_EQ(careless_json(root_), Lines{});
  EXPECT_EQ(flags_in_libraries(root_), Lines{});
  EXPECT_EQ(parameters_without_flag(root_), Lines{});
  EXPECT_EQ(calls_of_one_system(root_), Lines{});
  EXPECT_EQ(missing_algorithm_includes(root_), Lines{});
  EXPECT_EQ(dead_links(root_), Lines{});
}

TEST_F(SourceRules, FindAnIncludeThatRunsUp) {
  write("core/tensor.cpp", "\n#include \"nn/module.h\"\n");
  write("parallel/rank.cuh", "#  include <chapters/common/flags.h>\n");
  EXPECT_EQ(wrong_includes(root_), (Lines{"core/tensor.cpp:2: core/ may not include nn/module.h",
                                          "parallel/rank.cuh:1: parallel/ may not include chapters/common/flags.h"}));
}

TEST_F(SourceRules, FindAnIncludeThatRunsSideways) {
  write("datasets/loader.h", "#include \"nn/module.h\"\n");
  write("nn/weights.h", "#include \"datasets/loader.h\"\n");
  EXPECT_EQ(wrong_includes(root_).size(), 2U);
}

TEST_F(SourceRules, FindATensorWhereNoneIsKnown) {
  write("core/base/parse.cpp", "#include \"core/base/error.h\"\n#include \"core/shape.h\"\n");
  write("parallel/schedule/check.cpp", "#include \"core/base/error.h\"\n#include \"core/trace.h\"\n");
  EXPECT_EQ(wrong_includes(root_),
            (Lines{"core/base/parse.cpp:2: core/base/ may not include core/shape.h",
                   "parallel/schedule/check.cpp:2: parallel/schedule/ may not include core/trace.h"}));
}

TEST_F(SourceRules, FindAnIncludeThatRunsUpWithinParallel) {
  write("parallel/schedule/check.cpp", "#include \"parallel/comm/link.h\"\n");
  write("parallel/comm/tcp/control_channel.h",
        "#include \"parallel/comm/mpi/mpi_world.h\"\n#include \"parallel/comm/link.h\"\n");
  write("parallel/pipeline/stage.h",
        "#include \"parallel/pipeline/split.h\"\n#include \"parallel/schedule/check.h\"\n");
  write("parallel/new_folder/stage.h", "#include \"parallel/schedule/check.h\"\n");
  EXPECT_EQ(
      wrong_includes(root_),
      (Lines{"parallel/comm/tcp/control_channel.h:1: parallel/comm/tcp/ may not include parallel/comm/mpi/mpi_world.h",
             "parallel/new_folder/stage.h:1: parallel/new_folder/ may not include parallel/schedule/check.h",
             "parallel/schedule/check.cpp:1: parallel/schedule/ may not include parallel/comm/link.h"}));
}

TEST_F(SourceRules, FindAnIncludeThatIsNotWrittenFromTheRoot) {
  write("core/shape.h", "#include \"../nn/module.h\"\n#include \"tensor.h\"\n#include \"tests/support.h\"\n");
  EXPECT_EQ(wrong_includes(root_).size(), 3U);
}

TEST_F(SourceRules, LetAChapterIncludeEveryFloor) {
  write("chapters/01/main.cpp",
        "#include \"chapters/common/flags.h\"\n#include \"parallel/rank.h\"\n#include \"datasets/loader.h\"\n");
  EXPECT_EQ(wrong_includes(root_), Lines{});
}

TEST_F(SourceRules, FindASourceThatIsNotBuilt) {
  write("nn/old_module.cpp", "");  // its name ends like one that is listed
  write("tests/nn/module_test.cpp", "");
  write("tests/nn/CMakeLists.txt", "# module_test.cpp\n");
  EXPECT_EQ(unlisted_sources(root_),
            (Lines{"tests/nn/module_test.cpp: in no CMakeLists.txt", "nn/old_module.cpp: in no CMakeLists.txt"}));
}

TEST_F(SourceRules, AcceptASourceListedInAFolderAbove) {
  write("chapters/01/main.cpp", "");
  write("chapters/CMakeLists.txt", "add_executable(first 01/main.cpp)\n");
  EXPECT_EQ(unlisted_sources(root_), Lines{});
}

TEST_F(SourceRules, FindAThreadThatNoSanitizerSees) {
  write("tests/core/CMakeLists.txt",
        "stagecoach_test(a SOURCES seen_test.cpp ONE_THREAD hidden_test.cpp b.cpp LIBRARIES c)\n");
  write("tests/core/seen_test.cpp", "#include \"core/asynchronous.h\"\n");
  write("tests/core/hidden_test.cpp", "#include \"core/asynchronous.h\"\n");
  write("tests/core/b.cpp", "#include \"core/tensor.h\"\n");
  EXPECT_EQ(threads_without_sanitizer(root_), (Lines{"tests/core/hidden_test.cpp: core/asynchronous.h starts threads; "
                                                     "list it before ONE_THREAD"}));
}

TEST_F(SourceRules, FindForeignRandomNumbers) {
  write("datasets/loader.cpp", "#include <random>\nint x = std::rand();\nint operand;\n");
  EXPECT_EQ(foreign_random_numbers(root_), (Lines{"datasets/loader.cpp:1: #include <random>, instead of core/random.h",
                                                  "datasets/loader.cpp:2: std::rand, instead of core/random.h"}));
}

TEST_F(SourceRules, FindAParserOfTheJsonLibrary) {
  write("core/base/parse_json.h", "return Json::parse(text, watch);\n");
  write("nn/header.cpp", "auto json = nlohmann::json::parse(text);\nparse_json<Json>(text);\nJson::accept(text);\n");
  EXPECT_EQ(careless_json(root_), (Lines{"nn/header.cpp:1: json::parse, instead of core/base/parse_json.h",
                                         "nn/header.cpp:3: Json::accept, instead of core/base/parse_json.h"}));
}

TEST_F(SourceRules, FindAFlagInATextOfALibrary) {
  write("chapters/common/flags.cpp", "throw UsageError(\"--ranks: expected a number\");\n");
  write("nn/models.cpp",
        "char quote = '\"';  // of --model\nfail(\"expected no --{}, got \\\"5\\\"; leave out --heads\");\n");
  write("parallel/launch/mpi.cpp", "fail(\"run scripts/setup.sh --for-mpi, or srun --mpi=pmix\");\n--count;\n");
  const std::string advice = ", instead of a `parameter` (chapters/common/name_flags.cpp)";
  EXPECT_EQ(flags_in_libraries(root_), (Lines{"nn/models.cpp:2: --{}" + advice, "nn/models.cpp:2: --heads" + advice}));
}

TEST_F(SourceRules, FindAParameterWithoutAFlag) {
  write("chapters/common/name_flags.cpp", "{\"`on_device`\", \"--data-on-device\"},\n");
  write("chapters/common/flag_table.cpp", "{\"image-size\", whole(&Training::image_size, 0, 1024)},\n");
  write("parallel/launch/launch.cpp",
        "fail(\"expected no `{}`; use `on_device` or `image_size`\");  // `world`\nfail(\"raise `timeout`\");\n");
  EXPECT_EQ(parameters_without_flag(root_),
            (Lines{"parallel/launch/launch.cpp:2: `timeout` has no flag in chapters/common/name_flags.cpp"}));
}

TEST_F(SourceRules, FindACallOfOneSystem) {
  write("core/base/system_linux.cpp", "int x = ::eventfd(0, 0);\n");
  write("core/event.cpp", "int x = ::eventfd(0, 0);\nstd::ifstream file(\"/proc/meminfo\");\nint my_eventfd;\n");
  EXPECT_EQ(calls_of_one_system(root_), (Lines{"core/event.cpp:1: eventfd, instead of core/base/system.h",
                                               "core/event.cpp:2: \"/proc/, instead of core/base/system.h"}));
}

TEST_F(SourceRules, FindAnAlgorithmThatIsNotIncluded) {
  write("nn/sizes.h", "#include <algorithm>\nint y = std::max(1, 2);\n");
  write("nn/sizes.cpp", "#include \"nn/sizes.h\"\nint x = std::min(1, 2);\n");
  write("tests/nn/sizes_test.cpp", "#include \"nn/sizes.h\"\nauto n = std::count(a, b, 1) + std::counter;\n");
  EXPECT_EQ(missing_algorithm_includes(root_),
            (Lines{"tests/nn/sizes_test.cpp:2: std::count without #include <algorithm>"}));
}

TEST_F(SourceRules, FindADeadLink) {
  write("README.md", "[x](nn/module.cpp) [y](https://a.b/c) [z](#usage) ![p](p.svg) `f[i](j)` `[i](Tensor&)`\n");
  write("docs/page.md", "[x](../nn/module.cpp#L3) and [y](nn/module.cpp)\n");
  EXPECT_EQ(dead_links(root_),
            (Lines{"docs/page.md:1: nn/module.cpp is not there", "README.md:1: p.svg is not there"}));
}

}  // namespace
}  // namespace stagecoach
