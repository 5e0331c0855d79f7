#include "chapters/common/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>

#include "core/base/system.h"
#include "core/cuda_backend.h"

namespace stagecoach {
namespace {

bool ranks_share_cores(const Settings& settings, Communicator& comm) {
  return settings.world.transport == Transport::thread && comm.device().type == DeviceType::cpu &&
         comm.clock().kind() == ClockKind::wall &&
         static_cast<std::size_t>(comm.size()) > system::usable_cores().size();
}

}  // namespace

void print_line(const std::string& line) { print_text(line + "\n"); }

void print_text(const std::string& text) {
  if (std::ferror(stdout) == 0) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
}

void print_header(const Settings& settings, Communicator& comm, const std::string& stages) {
  std::string header = settings_table(settings);
  if (!stages.empty()) {
    header += fmt::format("  {:<13} {}\n", "stages", stages);
  }
  if (comm.device().type == DeviceType::cuda) {
    header += fmt::format("  {:<13} {}\n", "gpu", cuda::description(comm.device()));
  }
  if (ranks_share_cores(settings, comm)) {
    header += fmt::format(
        "note: {} ranks share {} cores, so wall-clock times include waiting for a core; --clock virtual excludes it\n",
        comm.size(), system::usable_cores().size());
  }
  if (settings.training.inject != Bug::none) {
    header += fmt::format("note: this run has the bug '{}' of docs/bugs.md\n", name_of(settings.training.inject));
  }

  print_text(header);
}

ProgressBar::ProgressBar(std::int64_t epoch, std::int64_t steps, bool is_shown)
    : epoch_(epoch), steps_(steps), on_terminal_(is_shown && isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (on_terminal_) {
    std::fputs("\r\033[K", stderr);
  }
}

void ProgressBar::show(std::int64_t step, std::optional<double> loss) {
  const int percent = static_cast<int>(100 * step / steps_);
  if (!on_terminal_ || percent == shown_percent_) {
    return;
  }
  shown_percent_ = percent;
  constexpr int kWidth = 30;  // the whole line fits in 80 columns
  const int full = kWidth * percent / 100;
  fmt::print(stderr, "\r\033[KEpoch {} [{:=<{}}{: <{}}] {:3d}%  step {}/{}{}", epoch_, "", full, "", kWidth - full,
             percent, step, steps_, loss ? fmt::format("  loss {:.3f}", *loss) : "");
}

}  // namespace stagecoach
