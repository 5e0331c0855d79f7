/// @file
/// Advises which schedule, mesh, micro-batches, split and recomputation a model should take on some devices and links:
/// the fastest plans within the memory, why they are, and the command that runs the first one
/// (docs/reference/advise.md).

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

#include "chapters/advise/command.h"
#include "chapters/advise/options.h"
#include "chapters/advise/report.h"
#include "chapters/advise/request.h"
#include "chapters/advise/verify.h"
#include "chapters/common/program.h"
#include "core/base/phrases.h"
#include "parallel/advise/pareto.h"

namespace stagecoach {
namespace {

/// Prints the question: what is to be trained, and on what.
void print_question(const AdviseOptions& options, const AdviceRequest& request, const Advice& advice) {
  const Settings& settings = options.settings;
  fmt::print("{} with batches of {} on {} of {} ({} each), link {}: {} plans, {} simulated\n\n",
             options.profiles.empty() ? settings.training.model : options.profiles.front(),
             counted(request.batch_size, "sample"), counted(request.ranks, "rank"),
             settings.world.modelled_device->name, bytes_text(request.memory_limit), settings.world.link.text(),
             advice.candidates, advice.simulated);
}

void print_notes(const AdviseOptions& options, const Advice& advice) {
  if (!options.profiles.empty()) {
    fmt::print("note: a profile does not say what updates and losses take, so they take no time here\n");
    return;
  }
  fmt::print("Run the first one (--explain plans it; without --clock it takes this machine's time)\n  {}\n",
             command_of(options, advice.best.front()));
}

int run(int argc, const char* const* argv) {
  const AdviseOptions options = advise_options(argc, argv);
  const AdviceRequest request = request_of(options);
  Advice advice = advise(request, options.count);
  if (options.pareto) {
    advice.best = pareto(request, std::move(advice.best));
  }
  if (options.form == AdviceForm::text) {
    print_question(options, request, advice);
    fmt::print("{}\n", plans_table(request, advice));
    if (!options.pareto) {
      fmt::print("{}\n{}\n", why_text(request, advice), rejected_text(advice, options.rejected));
    }
    print_notes(options, advice);
  } else {
    fmt::print("{}", options.form == AdviceForm::json ? plans_json(request, advice) : plans_csv(request, advice));
  }
  if (options.verify > 0) {
    std::fflush(stdout);
    fmt::print("\nPredicted, and run on the modelled clock\n{}",
               verified_table(options, advice, std::filesystem::path(argv[0]).parent_path().string()));
  }
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  return stagecoach::run_program(stagecoach::kAdvise, [&] { return stagecoach::run(argc, argv); });
}
