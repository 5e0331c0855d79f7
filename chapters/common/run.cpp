#include "chapters/common/run.h"

#include <fmt/format.h>

#include "chapters/common/bug_hooks.h"
#include "chapters/common/name_flags.h"
#include "chapters/common/open.h"
#include "chapters/compare/report.h"
#include "core/base/error.h"

namespace stagecoach {

RunOptions run_options(const Settings& settings, const Communicator* comm) {
  const RunSettings& run = settings.run;
  const WorldSettings& world = settings.world;
  RunOptions options{.out = run.out,
                     .resume = run.resume,
                     .accept_new_data = run.accept_new_data,
                     .epochs = settings.training.epochs,
                     .batch_size = settings.training.batch_size,
                     .labels = reads_text(settings.training) ? settings.training.context : 1,
                     .rate = {.shape = settings.training.lr_schedule, .warm_up = settings.training.lr_warmup},
                     .profile = run.profile,
                     .summary = run.summary,
                     .header = settings_table(settings),
                     .transport = world.transport,
                     .timeout = world.timeout,
                     .clock = world.clock,
                     .device_model = *world.modelled_device,
                     .print = [](const std::string& text) { print_text(name_flags(text)); }};
  if (!run.out.empty() || !run.resume.empty()) {
    options.config = config_json(settings);
    options.training = training_json(settings);
  }
  if (!settings.training.weights.empty()) {
    options.notes.push_back("begins with the weights in " + settings.training.weights);
  }
  if (!run.resumed_level.empty() && !world.cpu_level.empty() && run.resumed_level != world.cpu_level) {
    options.resume_notes.push_back(
        fmt::format("until here, the CPU kernels were those of {0}; those of {1} may round the last bits differently "
                    "(STAGECOACH_LEVEL={0} keeps the level, where it was built and is supported)",
                    run.resumed_level, world.cpu_level));
  }
  if (run.report) {
    options.when_done = [](const std::filesystem::path& folder) {
      try {
        write_report(folder);
      } catch (const DataError& error) {
        throw DataError(fmt::format("the training is complete and saved, but its report is not: {}", error.what()));
      }
    };
  }
  put_bug_into(options, settings.training.inject, comm);
  return options;
}

Run make_run(const Settings& settings, Communicator& comm, const RankRole& role) {
  return Run(run_options(settings, &comm), comm, role);
}

Run make_run(const Settings& settings, Device device) { return Run(run_options(settings), device); }

Run make_run(const Settings& settings, const std::vector<Device>& devices) {
  return Run(run_options(settings), devices);
}

}  // namespace stagecoach
