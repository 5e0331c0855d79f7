#include "chapters/03_gpipe/lab/descending_gpipe.h"
#include "chapters/03_gpipe/lab/run_table.h"
#include "tests/labs/lab3.h"
#include "tests/labs/run_lab.h"

int main(int argc, char** argv) {
  using namespace stagecoach;
  return labs::run_lab(argc, argv, 3, [] {
    return labs::lab3::criteria({.descending_gpipe = lab::descending_gpipe, .run_table = lab::run_table});
  });
}
