/// @file
/// Writes the generated data set in CIFAR-10's binary layout.

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "chapters/common/bounds.h"
#include "core/error.h"
#include "datasets/generated.h"

int main(int argc, char** argv) {
  using namespace stagecoach;
  CLI::App app("Writes ten classes of coloured shapes in CIFAR-10's binary layout", "make_generated_data");
  std::string folder = "data/generated";
  GeneratedSettings settings;
  app.add_option("folder", folder, "Where to")->capture_default_str();
  const auto within = [](const Allowed& allowed) {
    return CLI::Validator([allowed](std::string& text) { return check(allowed, text); }, "");
  };
  const WholeNumbers pictures{1, kMostGenerated};
  app.add_option("--train", settings.train, "Pictures to train with")
      ->capture_default_str()
      ->transform(within(pictures));
  app.add_option("--test", settings.test, "Pictures to test with")->capture_default_str()->transform(within(pictures));
  app.add_option("--seed", settings.seed, "Other seeds give other pictures")
      ->capture_default_str()
      ->transform(within(kAnySeed));
  try {
    app.parse(argc, argv);
    write_generated(folder, settings);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "make_generated_data: {}; make_generated_data --help lists the flags\n", error.what());
    return 2;
  } catch (const UsageError& error) {
    fmt::print(stderr, "make_generated_data: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "make_generated_data: {}\n", error.what());
    return 3;
  }
  fmt::print("Wrote {} training and {} test pictures to {}\n", settings.train, settings.test, folder);
  return 0;
}
