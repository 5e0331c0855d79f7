#include "parallel/training/step_causes.h"

namespace stagecoach {

NamedNumbers step_parts(const MeasuredTimes& measured, const StepCauses& causes) {
  const double waiting = measured.step - measured.working;
  const double all = causes.all.value_or(waiting - measured.waiting_for_data);
  return {{"ideal", measured.working - measured.updating - measured.loading},
          {"bubble", causes.bubble},
          {"imbalance", all - causes.bubble - causes.messages - causes.reductions},
          {"messages", causes.messages},
          {"reductions", causes.reductions},
          {"update", measured.updating},
          {"host", measured.loading + waiting - all}};  // other ranks wait for a rank that waits for its data
}

}  // namespace stagecoach
