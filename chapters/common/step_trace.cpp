#include "chapters/common/step_trace.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

#include "chapters/common/console.h"
#include "chapters/common/profile.h"
#include "parallel/pipeline/gather.h"

namespace stagecoach {

StepTrace::StepTrace(Communicator& comm, bool profile) : comm_(comm), profile_(profile) {
  if (profile) {
    trace_->wait_for(comm.device());
  }
  if (comm.size() > 1) {
    trace_->attach(comm.rank(), [&clock = comm.clock()] { return clock.now(); });
  } else {
    trace_->attach(0);
  }
}

void StepTrace::add_step() {
  if (trace_ != nullptr && steps_ < kSteps && ++steps_ == kSteps) {
    Trace::detach();
  }
}

void StepTrace::finish(RunFolder& folder) {
  if (trace_ == nullptr) {
    return;
  }
  Trace::detach();
  const std::string json = gather_trace(comm_, *trace_, predict_ ? predict_() : std::nullopt);
  if (comm_.rank() == 0) {
    folder.save_trace(json);
  }
  if (profile_ && steps_ > 0) {
    const std::vector<std::string> tables = gather_texts(comm_, profile_table(*trace_, steps_));
    for (std::size_t rank = 0; rank < tables.size(); ++rank) {
      print_text((comm_.size() > 1 ? fmt::format("Rank {}. ", rank) : "") + tables[rank]);
    }
  }
  trace_.reset();
}

}  // namespace stagecoach
