#pragma once
/// @file
/// The command that runs a plan.

#include <string>

#include "chapters/advise/options.h"
#include "parallel/advise/evaluate.h"

namespace stagecoach {

/// Returns the chapter's program with the flags of the plan, on the modelled clock: "ch06_ddp --ranks 8 …". It trains
/// on `data`; on what the chapter takes by default, or for gpt on text:book, if that is "".
std::string command_of(const AdviseOptions& options, const Evaluated& plan, const std::string& data = "");

}  // namespace stagecoach
