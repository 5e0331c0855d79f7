#include "nn/running_statistics.h"

#include <utility>

namespace stagecoach {
namespace {

thread_local bool move = true;

}  // namespace

bool running_statistics_move() { return move; }

KeepRunningStatistics::KeepRunningStatistics() : before_(std::exchange(move, false)) {}
KeepRunningStatistics::~KeepRunningStatistics() { move = before_; }

}  // namespace stagecoach
