#include "parallel/comm/timed_receives.h"

#include <algorithm>

#include "parallel/comm/communicator.h"

namespace stagecoach {

void TimedReceives::expect(Posted& posted, LinkDirection& direction, double now) {
  posted.direction_ = &direction;
  posted.post_ = direction.post(now);
  expected_.push_back(&posted);
}

void TimedReceives::advance() {
  // Messages of one direction are matched in the order in which they were sent. Transports deliver their headers in
  // that order; an earlier message that arrives during a poll, after its own receive was checked, is found by the next
  // poll.
  std::vector<Posted*> begun;
  for (bool more = true; more;) {
    more = false;
    std::erase_if(expected_, [&](Posted* posted) {
      const bool has_begun = posted->has_begun();
      if (has_begun) {
        begun.push_back(posted);
        more = true;
      }
      return has_begun;
    });
  }
  std::sort(begun.begin(), begun.end(),
            [](const Posted* a, const Posted* b) { return a->sent().number < b->sent().number; });
  std::for_each(begun.begin(), begun.end(), [](Posted* posted) { match(*posted); });
}

void TimedReceives::match(Posted& posted) {
  posted.arrival_ = posted.direction_->match(posted.sent(), posted.post_);
  posted.is_matched_ = true;
  posted.answer(std::max(posted.arrival_, posted.post_.time));
}

void TimedReceives::withdraw(Posted& posted) noexcept {
  try {
    advance();                  // the sender may be waiting for an answer
  } catch (const CommError&) {  // about another message, whose own wait will report it
  }
  std::erase(expected_, &posted);
  if (posted.direction_ != nullptr && !posted.is_matched_) {
    posted.direction_->cancel(posted.post_);
  }
}

}  // namespace stagecoach
