#include "chapters/09_sharded_data_parallel/lab/sharded_update.h"
#include "chapters/09_sharded_data_parallel/lab/step.h"
#include "chapters/09_sharded_data_parallel/lab/unit.h"
#include "tests/labs/lab9.h"
#include "tests/labs/run_lab.h"

int main(int argc, char** argv) {
  using namespace stagecoach;
  return labs::run_lab(argc, argv, 9, [] {
    return labs::lab9::criteria({.shard_of = lab::shard_of,
                                 .sharded_update = lab::sharded_update,
                                 .gather = lab::gather,
                                 .free_weights = lab::free_weights,
                                 .reduce = lab::reduce,
                                 .forward = lab::forward,
                                 .reach = lab::reach});
  });
}
