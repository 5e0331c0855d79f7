/// @file
/// Measures this machine's CPU or GPU, and writes the file of its device model, for --device-model.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "chapters/calibrate/fit.h"
#include "chapters/calibrate/options.h"
#include "chapters/calibrate/timings.h"
#include "chapters/common/program.h"
#include "core/base/error.h"
#include "core/base/median.h"
#include "core/base/memory_limits.h"
#include "core/base/text_file.h"
#include "core/base/throw_if.h"
#include "core/cuda_backend.h"
#include "core/device_model.h"

namespace stagecoach {
namespace {

/// Returns what kernel calls do not tell.
DeviceModel measured_surroundings(Device device) {
  const bool is_gpu = device.type == DeviceType::cuda;
  DeviceModel model{};
  model.backend = device.type;
  model.host_launch_seconds = is_gpu ? seconds_per_operation(device) : 0;
  model.host_bytes_per_second = host_bytes_per_second(device);
  model.load_bytes_per_second = loaded_bytes_per_second();
  model.memory_bytes = static_cast<std::int64_t>(available_memory());
  model.copy_engines = is_gpu ? 2 : 0;
  return model;
}

/// Removes the calls of the model that is left out.
void leave_out(const std::string& model, Timings& timings) {
  const auto removed = std::erase_if(
      timings.calls, [&](const Timing& each) { return each.model == model || each.model.starts_with(model + " "); });
  throw_if<UsageError>(!model.empty() && removed == 0, "--without {}: there are no calls of it", model);
}

/// Measures this machine. `timings` are the times that the model is fitted to.
DeviceModel measured_model(const CalibrateOptions& options, Timings& timings) {
  const Device device = parse_device(options.device);
  require_device(device);
  throw_if<UsageError>(options.tf32 && device.type == DeviceType::cpu, "--tf32 needs a GPU; give --device cuda");
  timings = measured_timings(device, options.tf32);
  leave_out(options.without, timings);
  DeviceModel model = fitted(timings, measured_surroundings(device), options.tf32);
  if (device.type == DeviceType::cpu) {
    model.launch_seconds = seconds_per_operation(device);
  }
  return model;
}

DeviceModel model_of_page(const CalibrateOptions& options, Timings& timings) {
  timings = timings_of_page(options.times);
  leave_out(options.without, timings);
  return fitted(timings, device_model(options.like), options.tf32);
}

/// Prints how well the model explains the times, and with `calls` each of them.
void print_errors(const DeviceModel& model, const Timings& timings, bool tf32, bool calls) {
  if (calls) {
    fmt::print("| call | µs | modelled µs | ratio |\n|---|---:|---:|---:|\n");
  }
  std::vector<double> factors;
  for (const Timing& timing : timings.calls) {
    if (timing.tf32 == tf32) {
      const double found = ratio(model, timing);
      factors.push_back(std::max(found, 1 / found));
      if (calls) {
        fmt::print("| {} | {:.1f} | {:.1f} | {:.2f} |\n", timing.name, 1e6 * timing.seconds,
                   1e6 * found * timing.seconds, found);
      }
    }
  }
  throw_if<UsageError>(factors.empty(), "the page has no calls {} TF32", tf32 ? "with" : "without");
  fmt::print("{} calls; half of them are modelled within a factor of {:.2f} of their time, all within {:.2f}\n",
             factors.size(), *median(factors), *std::max_element(factors.begin(), factors.end()));
}

int run(int argc, const char* const* argv) {
  const CalibrateOptions options = calibrate_options(argc, argv);
  Timings timings;
  DeviceModel model = options.times.empty() ? measured_model(options, timings) : model_of_page(options, timings);
  model = rounded(model);
  model.name = options.name;
  device_model_from_json(to_json(model), options.out);  // a name that could not be read is refused here
  write_text(options.out, to_json(model));
  print_errors(model, timings, options.tf32, options.calls);
  fmt::print("Wrote {}\n", options.out);
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  return stagecoach::run_program(stagecoach::kCalibrate, [&] { return stagecoach::run(argc, argv); });
}
