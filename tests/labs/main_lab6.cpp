#include "chapters/06_ddp/lab/assign_buckets.h"
#include "chapters/06_ddp/lab/reducer.h"
#include "tests/labs/lab6.h"
#include "tests/labs/run_lab.h"

int main(int argc, char** argv) {
  using namespace stagecoach;
  return labs::run_lab(argc, argv, 6, [] {
    return labs::lab6::criteria({.assign_buckets = lab::assign_buckets,
                                 .start_step = lab::start_step,
                                 .gradient_ready = lab::gradient_ready,
                                 .finish_step = lab::finish_step});
  });
}
