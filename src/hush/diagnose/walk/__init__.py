"""What mean-field theory expects of any model, worked out function by function while the model runs once.

population   one unit of a value, drawn many times, at five places: what the theory knows of a tensor
sites        which position and which unit each entry of a tensor is, through every view and permutation
noise        what a finite number of units adds, to first order
rules_*      how a layer, a norm, an elementwise function, attention, a pooling changes a population
backward     the squared gradient, back over what was recorded
dispatch     which rule speaks of which torch function
along_the_run   watches the model run and applies the rules
"""
