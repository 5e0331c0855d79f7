/// @file
/// Writes the generated data set in CIFAR-10's binary layout.

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include <iostream>

#include "chapters/common/bounds.h"
#include "chapters/common/exit_code.h"
#include "core/error.h"
#include "core/printable.h"
#include "datasets/generated.h"

namespace stagecoach {
namespace {

constexpr const char* kProgram = "make_generated_data";

int run(int argc, const char* const* argv) {
  CLI::App app("Writes ten classes of coloured shapes in CIFAR-10's binary layout", kProgram);
  std::string folder = "data/generated";
  GeneratedSettings settings;
  app.add_option("folder", folder, "Where to")->capture_default_str();
  const auto within = [](const Allowed& allowed) {
    return CLI::Validator([allowed](std::string& text) { return check(allowed, text); }, "");
  };
  const WholeNumbers pictures{1, kMaxGenerated};
  app.add_option("--train", settings.train, "Pictures to train with")
      ->capture_default_str()
      ->transform(within(pictures));
  app.add_option("--test", settings.test, "Pictures to test with")->capture_default_str()->transform(within(pictures));
  app.add_option("--seed", settings.seed, "Other seeds give other pictures")
      ->capture_default_str()
      ->transform(within(kAnySeed));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << std::flush;
    return 0;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}; {} --help lists the flags", error.what(), kProgram));
  }
  write_generated(folder, settings);
  fmt::print("Wrote {} training and {} test pictures to {}\n", settings.train, settings.test, printable(folder));
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  return stagecoach::with_exit_code(stagecoach::kProgram, [&] { return stagecoach::run(argc, argv); });
}
