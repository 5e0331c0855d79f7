// Timelines of data-parallel steps as text.

#include "parallel/data_parallel/draw_timeline.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(DrawTimeline, AMessageBeginsWithABarAlsoBehindAnother) {
  using Kind = Bar::Kind;
  const Timeline central{.bars = {{"forward", Kind::compute, 0, 2},
                                  {"backward", Kind::compute, 2, 4},
                                  {"gather", Kind::communication, 4, 6},
                                  {"send", Kind::communication, 6, 8}},
                         .seconds = 8};
  EXPECT_EQ(draw_text({{"central", central}}, {.columns = 52}),
            "time        0         2         4         6\n"
            "central     forward---backward--....................\n"
            "  messages                      |gather===|send=====\n"
            "            . idle\n");
}

}  // namespace
}  // namespace stagecoach
