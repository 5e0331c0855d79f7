# Has the name of a file of Stagecoach, which must not find this one in its place.
set_property(GLOBAL APPEND PROPERTY PARENT_OPTIONS included)
