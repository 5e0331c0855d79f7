#pragma once
/// @file
/// The command that runs a plan.

#include <string>

#include "chapters/advise/options.h"
#include "parallel/advise/evaluate.h"

namespace stagecoach {

/// Returns the chapter's program with the flags of the plan, on the modelled clock: "ch06_ddp --ranks 8 …".
std::string command_of(const AdviseOptions& options, const Evaluated& plan);

}  // namespace stagecoach
