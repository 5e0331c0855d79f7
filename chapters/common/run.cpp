#include "chapters/common/run.h"

#include <fmt/format.h>

#include <utility>

#include "chapters/common/interrupt.h"
#include "chapters/common/open.h"
#include "core/printable.h"
#include "parallel/launch/launch.h"

namespace stagecoach {

Run::Run(const Settings& settings, Device device) : Run(settings, self_communicator(device, settings.world.clock)) {}

Run::Run(const Settings& settings, std::unique_ptr<Communicator> self_comm) : Run(settings, *self_comm, {}) {
  self_comm_ = std::move(self_comm);
}

Run::Run(const Settings& settings, Communicator& comm, const RankRole& role)
    : settings_(settings),
      comm_(comm),
      role_(role),
      state_(settings, comm, role),
      meter_(comm),
      stop_(comm),
      trace_(comm, settings.run.profile) {
  if (prints() || settings.world.transport != Transport::thread) {
    catch_interrupts();  // launchers send signals to all processes; rank 0 decides for all
  }
  if (!settings.run.out.empty()) {
    ignore_broken_pipes();
  }
  if (prints()) {
    print_header(settings, comm, role.stages);
  }
}

void Run::print_notes(const std::vector<std::string>& notes) const {
  for (const std::string& note : notes) {
    if (prints()) {
      print_line("note: " + printable(note));
    }
  }
}

void Run::set_up_checkpoints(Module& model, Optimizer& optimizer, CompressionMemory* memory) {
  if (const auto saved = state_.restore(model, optimizer, memory)) {
    meter_.resume(*saved, role_.loss_rank);
  }
}

Run::~Run() = default;

Epoch* Run::next_epoch() {
  if (epoch_ != nullptr) {
    epoch_->finish();
    epoch_.reset();
  }
  if (meter_.progress().epoch <= settings_.training.epochs) {
    epoch_ = std::make_unique<Epoch>(*this);
  } else if (state_.folder().writes() && prints()) {
    print_line("Results: " + printable(state_.folder().path().string()));
  }
  return epoch_.get();
}

}  // namespace stagecoach
