/// @file
/// Writes the generated data set in CIFAR-10's binary layout, or as arrays of NumPy.

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "chapters/common/bounds.h"
#include "chapters/common/flags.h"
#include "chapters/common/program.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "datasets/array_folder.h"
#include "datasets/generated.h"

namespace stagecoach {
namespace {

constexpr const char* kProgram = "make_generated_data";

int run(int argc, const char* const* argv) {
  CLI::App app("Writes ten classes of coloured shapes in CIFAR-10's binary layout, or as arrays", kProgram);
  std::string folder = "data/generated";
  GeneratedSettings settings;
  app.add_option("folder", folder, "Folder to write to")->capture_default_str();
  const auto offer = [&](const std::string& name, auto& value, std::uint64_t least, std::uint64_t most,
                         const std::string& help) {
    const auto set = [=, &value](const std::string& text) {
      value = static_cast<std::decay_t<decltype(value)>>(whole_number(text, least, most));
    };
    add_option(app, name, help, set).default_str(std::to_string(value));
  };
  offer("--train", settings.train, 1, kMaxGenerated, "Number of training images");
  offer("--test", settings.test, 1, kMaxGenerated, "Number of test images");
  offer("--seed", settings.seed, 0, std::numeric_limits<std::uint64_t>::max(), "Seed of the images");
  bool arrays = false;
  app.add_flag("--arrays", arrays, "Write train_inputs.npy, …, which are read from disk while a model trains");
  parse_command_line(app, argc, argv);
  arrays ? write_array_folder(folder, generate(settings)) : write_generated(folder, settings);
  fmt::print("Wrote {} training and {} test images to {}\n", settings.train, settings.test, printable(folder));
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  return stagecoach::run_program(stagecoach::kProgram, [&] { return stagecoach::run(argc, argv); });
}
