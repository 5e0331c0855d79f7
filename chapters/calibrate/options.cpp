#include "chapters/calibrate/options.h"

#include <CLI/CLI.hpp>

#include <filesystem>

#include "chapters/common/flags.h"
#include "core/base/throw_if.h"

namespace stagecoach {

CalibrateOptions calibrate_options(int argc, const char* const* argv) {
  CalibrateOptions options;
  CLI::App app("Measures what kernel calls take on this machine, and writes its device model for --device-model FILE.",
               kCalibrate);
  app.footer(
      "It takes less than half a minute. Close other programs: what they take from the processor is measured "
      "too.\n\nExample:\n  calibrate mine.json\n  ch03_gpipe --clock modelled --device-model mine.json");
  app.add_option("FILE", options.out, "The file to write, which ends with .json")->required();
  app.add_option("--name", options.name, "Name of the device")->capture_default_str();
  app.add_option("--device", options.device, "What to measure: cpu (one core), or a GPU such as cuda:0")
      ->capture_default_str();
  app.add_flag("--tf32", options.tf32, "Products of float32 use TF32, as with the chapters' --tf32");
  app.add_flag("--overwrite", options.overwrite, "Replace FILE if it exists");
  app.add_flag("--calls", options.calls, "Print the time of each call, and its modelled time, as Markdown");
  auto* times = app.add_option(
      "--times", options.times,
      "Do not measure, but read the times of a GPU from this page of cuda_kernels_benchmark; needs --like");
  app.add_option("--like", options.like, "With --times: the device model that has what the page does not tell")
      ->needs(times);
  times->needs("--like");
  app.add_option("--without", options.without,
                 "Leave out the calls of a model ('vit'), or those with one batch size ('vit 512')");
  parse_command_line(app, argc, argv);
  throw_if<UsageError>(!options.out.ends_with(".json"), "'{}': expected a file that ends with .json", options.out);
  throw_if<UsageError>(!options.overwrite && std::filesystem::exists(options.out),
                       "{} exists; give --overwrite to replace it", options.out);
  return options;
}

}  // namespace stagecoach
